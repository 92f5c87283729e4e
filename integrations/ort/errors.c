/* Statuses and log lines: a gqac_diag becomes the message of an OrtStatus, all four texts of it. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "provider.h"

ort_status *status_printf(const ort_api *api, int code, const char *format, ...) {
    char text[1024];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    return api->CreateStatus(code, text);
}

ort_status *status_no_memory(const ort_api *api) {
    return api->CreateStatus(ORT_EP_FAIL, "gqac: out of memory");
}

ort_status *status_of(const ort_api *api, const gqac_diag *diag) {
    static const struct {
        const char *head;
        size_t offset;
    } parts[] = {{"\n  where: ", offsetof(gqac_diag, where)},
                 {"\n  rule:  ", offsetof(gqac_diag, rule)},
                 {"\n  try:   ", offsetof(gqac_diag, hint)}};
    const gqac_status status = diag->status;
    const bool argument = status == GQAC_USAGE || status == GQAC_INVALID_INPUT ||
                          status == GQAC_OUT_OF_RANGE || status == GQAC_CAPACITY;
    char text[sizeof *diag + 128];
    size_t length = (size_t)snprintf(text, sizeof text, "gqac: %s: %s", gqac_status_meaning(status),
                                     diag->what);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        const char *part = (const char *)diag + parts[i].offset;
        if (*part && length < sizeof text)
            length +=
                (size_t)snprintf(text + length, sizeof text - length, "%s%s", parts[i].head, part);
    }
    return api->CreateStatus(argument ? ORT_INVALID_ARGUMENT : ORT_EP_FAIL, text);
}

void provider_log(const provider *p, int severity, const char *what, const char *why) {
    char text[sizeof(gqac_diag)];
    snprintf(text, sizeof text, PROVIDER_NAME " %s: %s", what, why);
    ort_status *status =
        p->api->Logger_LogMessage(p->logger, severity, text, __FILE__, __LINE__, __func__);
    if (status) /* a log that fails changes nothing else */
        p->api->ReleaseStatus(status);
}
