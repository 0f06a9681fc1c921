/* SPDX-License-Identifier: Apache-2.0 */
/* What the stand-in libc10_cuda.so gives its callers. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Returns memory of the GPU; NULL: an exception was thrown, since the driver has none. */
void *pytorch_allocate(size_t n, bool mapped);
void pytorch_free(void *p, bool raw);

#ifdef __cplusplus
}
#endif
