/* Strings, and the rules of JSON itself. White space between the parts of a text is one space, or a
 * line end with indentation; there is none before and after the text. */
#include <string.h>

#include "text/grammar/schema.h"

static const char json_rules[] =
    "json-space ::= \" \"? | \"\\n\" (\" \"{0,40} | \"\\t\"{1,10})\n"
    "json-hex ::= [0-9a-fA-F]\n"
    "json-unit ::= [0-9a-cA-CeEfF] json-hex{3} | [dD] [0-7] json-hex{2}\n"
    "    | [dD] [89abAB] json-hex{2} \"\\\\u\" [dD] [c-fC-F] json-hex{2}\n"
    "json-plain ::= [^\"\\\\\\x00-\\x1f]\n"
    "json-character ::= json-plain | \"\\\\\" ([\"\\\\/bfnrt] | \"u\" json-unit)\n"
    "json-string ::= \"\\\"\" json-character* \"\\\"\"\n"
    "json-digits ::= \"0\" | [1-9] [0-9]{0,14}\n"
    "json-fraction ::= \".\" [0-9]{1,15}\n"
    "json-zeros ::= \".\" \"0\"{1,15}\n"
    "json-integer ::= \"-\"? json-digits\n"
    "json-unsigned ::= json-digits json-fraction? ([eE] [+\\-]? [0-9]{1,2})?\n"
    "json-number ::= \"-\"? json-unsigned\n"
    "json-member ::= json-string \":\" json-space json-any\n"
    "json-object ::= \"{\" json-space\n"
    "    (json-member (\",\" json-space json-member)* json-space)? \"}\"\n"
    "json-array ::= \"[\" json-space (json-any (\",\" json-space json-any)* json-space)? \"]\"\n"
    "json-any ::= json-object | json-array | json-string | json-number | \"true\" | \"false\"\n"
    "    | \"null\"\n";

/* Rules of texts between quotes. Days of February end at 28, so that every year has them. */
static const struct {
    const char *name, *rule, *text;
} formats[] = {
    {"date", "format-date",
     "format-date ::= [12] [0-9]{3} \"-\" (\n"
     "    (\"0\" [13578] | \"1\" [02]) \"-\" (\"0\" [1-9] | [12] [0-9] | \"3\" [01])\n"
     "    | (\"0\" [469] | \"11\") \"-\" (\"0\" [1-9] | [12] [0-9] | \"30\")\n"
     "    | \"02-\" (\"0\" [1-9] | \"1\" [0-9] | \"2\" [0-8]))\n"},
    {"time", "format-time",
     "clock ::= ([01] [0-9] | \"2\" [0-3]) \":\" [0-5] [0-9]\n"
     "format-time ::= clock \":\" [0-5] [0-9] (\".\" [0-9]{1,6})? (\"Z\" | [+\\-] clock)\n"},
    {"date-time", "format-date-time", "format-date-time ::= format-date \"T\" format-time\n"},
    {"duration", "format-duration",
     "count ::= [0-9]{1,4}\n"
     "days ::= count \"D\"\n"
     "months ::= count \"M\" days?\n"
     "years ::= count \"Y\" months?\n"
     "seconds ::= count \"S\"\n"
     "minutes ::= count \"M\" seconds?\n"
     "hours ::= count \"H\" minutes?\n"
     "times ::= \"T\" (hours | minutes | seconds)\n"
     "format-duration ::= \"P\" (count \"W\" | times | (years | months | days) times?)\n"},
    {"uuid", "format-uuid",
     "lower ::= [0-9a-f]\n"
     "format-uuid ::= lower{8} \"-\" lower{4} \"-\" lower{4} \"-\" lower{4} \"-\" lower{12}\n"},
    {"ipv4", "format-ipv4",
     "octet ::= [0-9] | [1-9] [0-9] | \"1\" [0-9]{2} | \"2\" [0-4] [0-9] | \"25\" [0-5]\n"
     "format-ipv4 ::= octet (\".\" octet){3}\n"},
    {"ipv6", "format-ipv6",
     "group ::= [0-9a-f]{1,4}\n"
     "format-ipv6 ::= group (\":\" group){7}\n"},
    {"hostname", "format-hostname",
     "label ::= [a-z0-9] ([a-z0-9\\-]{0,30} [a-z0-9])?\n"
     "format-hostname ::= label (\".\" label){1,4}\n"},
    {"email", "format-email",
     "part ::= [A-Za-z0-9_+\\-]{1,32}\n"
     "format-email ::= part (\".\" part){0,3} \"@\" format-hostname\n"},
};
enum { FORMATS = sizeof formats / sizeof *formats };

void schema_open(schema *s) {
    build_rules(s->b, json_rules, sizeof json_rules - 1);
}

fragment schema_json(schema *s, const char *name) {
    return build_call(s->b, build_rule(s->b, name, strlen(name), 0));
}

static int find_format(const char *name) {
    for (int i = 0; i < FORMATS; i++)
        if (!strcmp(formats[i].name, name))
            return i;
    return -1;
}

/* Compiles the rules of a format, and of those that it consists of, once. */
static void open_format(schema *s, int i) {
    static const struct {
        const char *whole, *part;
    } parts[] = {{"date-time", "date"}, {"date-time", "time"}, {"email", "hostname"}};
    for (size_t k = 0; k < sizeof parts / sizeof *parts; k++) {
        const int part = find_format(parts[k].part);
        if (strcmp(parts[k].whole, formats[i].name) != 0 || s->formats & 1u << part)
            continue;
        s->formats |= 1u << part;
        build_rules(s->b, formats[part].text, strlen(formats[part].text));
    }
    if (!(s->formats & 1u << i))
        build_rules(s->b, formats[i].text, strlen(formats[i].text));
    s->formats |= 1u << i;
}

static fragment quoted(schema *s, fragment begin, fragment inner) {
    fragment all = build_join(s->b, begin, inner);
    return build_join(s->b, all, build_bytes(s->b, '"', '"'));
}

static fragment read_format(schema *s, const json_t *value) {
    const char *name = json_string_value(value);
    const int i = name ? find_format(name) : -1;
    if (i < 0) {
        schema_refuse(s, GQAC_UNSUPPORTED,
                      "date, time, date-time, duration, uuid, ipv4, ipv6, hostname or email",
                      "format '%.60s' is not supported", name ? name : "?");
        return build_never(s->b);
    }
    open_format(s, i);
    const fragment begin = build_bytes(s->b, '"', '"');
    return quoted(s, begin, schema_json(s, formats[i].rule));
}

fragment schema_string(schema *s, const json_t *node) {
    const json_t *format = json_object_get(node, "format");
    const json_t *pattern = json_object_get(node, "pattern");
    const bool lengths = json_object_get(node, "minLength") || json_object_get(node, "maxLength");
    const uint32_t least = schema_count(s, node, "minLength", 0);
    const uint32_t most = schema_count(s, node, "maxLength", BUILD_MANY);
    if ((format != NULL) + (pattern != NULL) + lengths > 1) {
        schema_refuse(s, GQAC_UNSUPPORTED, "a string has a format, a pattern, or lengths",
                      "'%s' beside %s is not supported", format ? "format" : "pattern",
                      format && pattern ? "'pattern'" : "'minLength' or 'maxLength'");
        return build_never(s->b);
    }
    if (pattern)
        return schema_pattern(s, pattern);
    if (format)
        return read_format(s, format);
    if (!lengths)
        return schema_json(s, "json-string");
    if (least > most)
        return build_never(s->b);
    const fragment begin = build_bytes(s->b, '"', '"');
    const fragment one = schema_json(s, "json-character");
    return quoted(s, begin, build_repeat(s->b, one, least, most));
}
