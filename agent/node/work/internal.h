/* SPDX-License-Identifier: Apache-2.0 */
/* Private to work/: declarations that its files share. */
#pragma once

#include "node/work/work.h"

/* process_task.c: handles a blocked job of the files worker. Loop thread. */
void work_files_stuck(struct worker *w, struct job *j, void *work);
