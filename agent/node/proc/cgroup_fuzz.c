/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any text as a cgroup's path, and as /proc/self/mountinfo and /proc/cgroups (with NULs between
 * them). A path still names the same pod with directories before it, or with " (deleted)" or a
 * slash behind it. Ids have only characters that are allowed in them.
 * Fuzzes: node/proc/cgroup_path.c, node/proc/hierarchy.c
 */
#include "node/proc/internal.h"

#include <ctype.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check(bool ok)
{
	if (!ok)
		abort();
}

static bool same(const struct cgroup_ref *a, const struct cgroup_ref *b)
{
	return streq(a->pod_uid, b->pod_uid) && streq(a->container_id, b->container_id) &&
	       a->runtime_helper == b->runtime_helper && a->nested == b->nested &&
	       a->pods_depth == b->pods_depth;
}

/* Checks that path names the same pod with `before` and `after` around it. */
static void check_same(const char *before, const char *path, const char *after,
		       const struct cgroup_ref *want)
{
	_cleanup_free_ char *longer = xasprintf("%s%s%s", before, path, after);
	struct cgroup_ref ref;

	check(proc_cgroup_parse_path(longer, &ref) == (want ? 0 : -ENOENT));
	check(!want || same(&ref, want));
}

static void parse_path(const char *path)
{
	struct cgroup_ref ref = {.pod_uid = "untouched"};
	const struct cgroup_ref *found = &ref;

	if (proc_cgroup_parse_path(path, &ref) < 0) {
		check(streq(ref.pod_uid, "untouched"));
		found = NULL;
	} else {
		check(ref.pod_uid[0] && strlen(ref.pod_uid) < sizeof(ref.pod_uid));
		for (const char *c = ref.pod_uid; *c; c++)
			check(isalnum((unsigned char)*c) || strchr("-_.", *c));
		check(!ref.container_id[0] || (strlen(ref.container_id) == 64 &&
					       strspn(ref.container_id, "0123456789abcdef") == 64));
		check(ref.container_id[0] || (!ref.nested && !ref.runtime_helper));
	}
	check_same("/system.slice/", path, "", found);
	if (!str_has_suffix(path, " (deleted)")) {
		check_same("", path, "/", found);
		check_same("", path, " (deleted)", found);
	}
}

static bool no_pods(const char *mount)
{
	return mount[0] && strlen(mount) % 2;
}

/* The input: mountinfo, NUL, /proc/cgroups, NUL, the wanted hierarchy. */
static void choose(const char *mountinfo, const char *end)
{
	static const char none[] = "";
	const char *controllers = mountinfo + strlen(mountinfo) + 1, *force;
	struct cgroup_hierarchy h = {0};
	struct field_error e = {0};

	controllers = controllers < end ? controllers : none;
	force = controllers == none ? none : controllers + strlen(controllers) + 1;
	force = force < end ? force : none;
	if (proc_cgroup_choose_from(mountinfo, controllers, force, no_pods, &h, &e) < 0) {
		check(e.path[0] && e.reason[0]);
		return;
	}
	check(h.mount[0] && h.v2 == !h.controller[0] && h.subsys_index == UINT32_MAX);
	check(!h.v2 || h.hierarchy_id == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	_cleanup_free_ char *text = xstrndup((const char *)data, n);
	_cleanup_free_ char *all = xmalloc(n + 1);

	memcpy(all, data, n);
	all[n] = '\0';
	parse_path(text);
	choose(all, all + n);
	return 0;
}
