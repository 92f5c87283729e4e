/* --sandbox of the verbs that read untrusted models. */
#ifndef GQAC_CLI_SANDBOXING_H
#define GQAC_CLI_SANDBOXING_H

#include "cli/cli.h"

/* Row of a flag table; `writes` completes "writes ...". */
#define SANDBOXING_FLAG(writes)                                                                    \
    {                                                                                              \
        "sandbox", NULL,                                                                           \
            "reads only the model's folder and what flags name, writes " writes                    \
            ", starts no program and opens no connection (Linux 6.2 or newer; not for target gpu)" \
    }

/* With --sandbox, confines the process before the first byte of the model is read: to the folder of
 * operand 0, --model-root and each FILE and DIR of the flags, for reading, and to what lies in the
 * folder `written` (NULL: nothing), for writing. To be called when there is one thread. USAGE: the
 * target is gpu, or the kernel lacks what this needs. */
gqac_status sandboxing_enter(cli *c, const char *written);
/* The same with the folder in which the file `output` will be; NULL: nothing is written. */
gqac_status sandboxing_enter_for(cli *c, const char *output);

#endif
