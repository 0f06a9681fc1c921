/* SPDX-License-Identifier: Apache-2.0 */
/*
 * types: the kernel's types (BTF), read once for all objects that are loaded at the agent's start.
 */
#pragma once

#include "lib/base/base.h"

#include <bpf/libbpf.h>

struct kernel_types {
	struct btf *all;
	int fd;
	char path[32];
};
/* The result owns `all`. */
struct kernel_types *probes_kernel_types_new(struct btf *all);
struct kernel_types *probes_kernel_types_free(struct kernel_types *t);
/*
 * Returns a path for bpf_object_open_opts.btf_custom_path. NULL: no file could be made, so libbpf
 * reads the types itself.
 */
const char *probes_kernel_types_path(const struct kernel_types *t);
/*
 * Writes the types that this object names into the file. The caller has opened the object with the
 * path, and loads it next. If only a pointer to a type is needed, the type is left out.
 */
int probes_kernel_types_for(struct kernel_types *t, const struct bpf_object *o);
