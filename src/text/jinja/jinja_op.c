/* Python's operators on the values of templates. */
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "text/jinja/jinja_impl.h"

jvalue jinja_wrong(jrun *r, const char *what, jvalue v) {
    if (v.type == J_UNDEFINED)
        return jinja_fail(r, GQAC_INVALID_INPUT,
                          v.flag ? "the sandbox of Jinja forbids '%.*s'" : "'%.*s' is undefined",
                          (int)v.n, v.s);
    return jinja_fail(r, GQAC_INVALID_INPUT, "a value of type %s cannot be %s", jinja_type(v),
                      what);
}

/* ---- operators ----------------------------------------------------------- */

static bool is_int(jvalue v) {
    return v.type == J_INT || v.type == J_BOOL;
}

static int64_t int_of(jvalue v) {
    return v.type == J_INT ? v.i : v.flag;
}

static jvalue too_large(jrun *r) {
    return jinja_fail(r, GQAC_LIMIT, "an integer has more than 64 bits");
}

static jvalue power_ints(jrun *r, int64_t base, int64_t exponent) {
    int64_t result = 1;
    if (exponent < 0)
        return base ? jinja_float(pow((double)base, (double)exponent))
                    : jinja_fail(r, GQAC_INVALID_INPUT, "0 cannot be raised to a negative power");
    if (base == 0 || base == 1 || base == -1)
        return jinja_int(exponent == 0 ? 1 : base == -1 && exponent % 2 == 0 ? 1 : base);
    for (; exponent > 0; exponent--) /* overflows after at most 63 iterations */
        if (!gqac_mul_i64(result, base, &result))
            return too_large(r);
    return jinja_int(result);
}

static jvalue binary_ints(jrun *r, uint8_t op, int64_t a, int64_t b) {
    int64_t x;
    bool fits = true;
    if ((op == '/' || op == '%' || op == JOP_FLOORDIV) && b == 0)
        return jinja_fail(r, GQAC_INVALID_INPUT, "division by zero");
    switch (op) {
    case '+':
        fits = gqac_add_i64(a, b, &x);
        break;
    case '-':
        fits = !__builtin_sub_overflow(a, b, &x);
        break;
    case '*':
        fits = gqac_mul_i64(a, b, &x);
        break;
    case '/':
        return jinja_float((double)((long double)a / (long double)b));
    case JOP_POW:
        return power_ints(r, a, b);
    default:
        if (b == -1) {
            fits = !__builtin_sub_overflow((int64_t)0, a, &x);
            x = op == '%' ? 0 : x;
            fits = fits || op == '%';
            break;
        }
        x = op == '%' ? a % b : a / b;
        if (a % b != 0 && (a < 0) != (b < 0))
            x += op == '%' ? b : -1;
    }
    return fits ? jinja_int(x) : too_large(r);
}

static jvalue binary_floats(jrun *r, uint8_t op, double a, double b) {
    if ((op == '/' || op == '%' || op == JOP_FLOORDIV) && b == 0)
        return jinja_fail(r, GQAC_INVALID_INPUT, "division by zero");
    double rest;
    switch (op) {
    case '+':
        return jinja_float(a + b);
    case '-':
        return jinja_float(a - b);
    case '*':
        return jinja_float(a * b);
    case '/':
        return jinja_float(a / b);
    case JOP_POW:
        if ((a == 0 && b < 0) || (a < 0 && isfinite(a) && isfinite(b) && b != floor(b)))
            return jinja_fail(r, GQAC_INVALID_INPUT, "the power is not a real number");
        rest = pow(a, b);
        if (isinf(rest) && isfinite(a) && isfinite(b))
            return jinja_fail(r, GQAC_INVALID_INPUT, "the power is too large for a float");
        return jinja_float(rest);
    default:
        rest = fmod(a, b);
        if (op == '%') {
            if (rest == 0)
                return jinja_float(copysign(0.0, b));
            return jinja_float((rest < 0) != (b < 0) ? rest + b : rest);
        }
        double quotient = (a - rest) / b - (rest != 0 && (rest < 0) != (b < 0) ? 1.0 : 0.0);
        double whole = floor(quotient);
        whole += quotient - whole > 0.5 ? 1.0 : 0.0;
        return jinja_float(quotient == 0 ? copysign(0.0, a / b) : whole);
    }
}

static jvalue add_lists(jrun *r, jvalue a, jvalue b) {
    size_t n = a.list->n + b.list->n;
    jvalue *v = jinja_alloc(r, n, sizeof *v);
    if (!v)
        return jinja_undefined;
    if (a.list->n)
        memcpy(v, a.list->v, a.list->n * sizeof *v);
    if (b.list->n)
        memcpy(v + a.list->n, b.list->v, b.list->n * sizeof *v);
    return jinja_list(r, a.type, v, n);
}

static jvalue repeat_list(jrun *r, jvalue a, int64_t times) {
    size_t n = a.list->n, count = times > 0 ? (size_t)times : 0, total;
    if (!gqac_mul_size(n, count, &total) || total > JINJA_MEMORY)
        return jinja_fail(r, GQAC_LIMIT, "the template makes a list of more than %d elements",
                          JINJA_MEMORY);
    jvalue *v = jinja_alloc(r, total, sizeof *v);
    for (size_t i = 0; v && i < total; i++)
        v[i] = a.list->v[i % n];
    return v ? jinja_list(r, a.type, v, total) : jinja_undefined;
}

static jvalue add_texts(jrun *r, jvalue a, jvalue b) {
    bool safe = a.flag || b.flag;
    if (safe && !a.flag)
        a = jinja_escape(r, a);
    if (safe && !b.flag)
        b = jinja_escape(r, b);
    jvalue text = jinja_ok(r) ? jinja_concat(r, a, b) : jinja_undefined;
    text.flag = safe && jinja_ok(r);
    return text;
}

static bool is_list(jvalue v) {
    return v.type == J_LIST || v.type == J_TUPLE;
}

jvalue jinja_binary(jrun *r, uint8_t op, jvalue a, jvalue b) {
    if (!jinja_ok(r))
        return jinja_undefined;
    if (is_int(a) && is_int(b))
        return binary_ints(r, op, int_of(a), int_of(b));
    if (jinja_is_number(a) && jinja_is_number(b))
        return binary_floats(r, op, jinja_number(a), jinja_number(b));
    if (op == '+' && a.type == J_STR && b.type == J_STR)
        return add_texts(r, a, b);
    if (op == '+' && a.type == b.type && is_list(a))
        return add_lists(r, a, b);
    if (op == '%' && a.type == J_STR)
        return jinja_percent(r, a, b);
    if (op == '*' && is_int(a)) {
        jvalue swap = a;
        a = b;
        b = swap;
    }
    if (op == '*' && a.type == J_STR && is_int(b))
        return jinja_repeat(r, a, int_of(b));
    if (op == '*' && is_list(a) && is_int(b))
        return repeat_list(r, a, int_of(b));
    if (a.type == J_UNDEFINED || b.type == J_UNDEFINED)
        return jinja_wrong(r, "an operand", a.type == J_UNDEFINED ? a : b);
    const char sign[] = {(char)op, '\0'};
    return jinja_fail(r, GQAC_INVALID_INPUT, "'%s' does not take values of types %s and %s",
                      op == JOP_FLOORDIV ? "//"
                      : op == JOP_POW    ? "**"
                                         : sign,
                      jinja_type(a), jinja_type(b));
}

bool jinja_compare(jrun *r, uint8_t op, jvalue a, jvalue b) {
    if (op == JOP_EQ)
        return jinja_equal(r, a, b);
    if (op == JOP_NE)
        return !jinja_equal(r, a, b);
    if (op == JOP_IN)
        return jinja_contains(r, a, b);
    if (op == JOP_NOT_IN)
        return !jinja_contains(r, a, b);
    if (a.type == J_UNDEFINED || b.type == J_UNDEFINED) {
        jinja_wrong(r, "compared", a.type == J_UNDEFINED ? a : b);
        return false;
    }
    int order = jinja_order(r, a, b);
    if (order == 2 && jinja_is_number(a)) /* not a number */
        return false;
    return op == '<' ? order < 0 : op == '>' ? order > 0 : op == JOP_LE ? order <= 0 : order >= 0;
}
