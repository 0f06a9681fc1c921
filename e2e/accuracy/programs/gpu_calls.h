/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_calls: how the programs that use a GPU check what calls of CUDA return. */
#pragma once

#include <stdio.h>
#include <stdlib.h>

/* Ends the program if a call of CUDA does not return `wanted`. */
#define GIVES(wanted, call)                                                                       \
	do {                                                                                      \
		int gave = (call);                                                                \
		if (gave != (wanted)) {                                                           \
			fprintf(stderr, "%s:%d: %d: %s\n", __FILE__, __LINE__, gave, #call);      \
			exit(1);                                                                  \
		}                                                                                 \
	} while (0)
#define WORKS(call) GIVES(0, call)
