/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of work share. */
#pragma once

#include "node/work/work.h"

/* process_task.c: on_stuck of the files worker. */
void work_files_stuck(struct worker *w, struct job *j, void *work);
