/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the pod and the container that a cgroup path names. The kubelet (with one of its two cgroup
 * drivers) and the container runtimes make the paths. proc_test.c has a path of each form. Pure.
 */
#include "node/proc/proc.h"

#include <ctype.h>

#define ID_DIGITS (CONTAINER_ID_BYTES - 1)

struct word {
	const char *s;
	size_t n;
};

static bool word_has_suffix(struct word w, const char *suffix)
{
	size_t n = strlen(suffix);

	return w.n >= n && memcmp(w.s + w.n - n, suffix, n) == 0;
}

static const char *word_find(struct word w, const char *needle)
{
	return memmem(w.s, w.n, needle, strlen(needle));
}

/*
 * Returns the last occurrence of needle in w: the user may have chosen a cgroup root that contains
 * the same letters.
 */
static const char *word_find_last(struct word w, const char *needle)
{
	size_t n = strlen(needle);

	for (size_t i = w.n + 1; i-- > 0;)
		if (i + n <= w.n && memcmp(w.s + i, needle, n) == 0)
			return w.s + i;
	return NULL;
}

/*
 * Sets ref->pod_uid from n characters at s. underscores: the kubelet has written '_' for each '-'
 * of the uid, because in the name of a slice '-' separates parents.
 */
static bool take_uid(const char *s, size_t n, bool underscores, struct cgroup_ref *ref)
{
	if (n == 0 || n >= sizeof(ref->pod_uid))
		return false;
	for (size_t i = 0; i < n; i++)
		if (!isalnum((unsigned char)s[i]) && !strchr("-_.", s[i]))
			return false;
	for (size_t i = 0; i < n; i++)
		ref->pod_uid[i] = underscores && s[i] == '_' ? '-' : s[i];
	ref->pod_uid[n] = '\0';
	return true;
}

/*
 * Takes the uid from "kubepods-burstable-pod<uid>.slice". A cgroup root may stand before it:
 * "kubelet-kubepods-...".
 */
static bool take_pod_slice(struct word w, struct cgroup_ref *ref)
{
	const char *pod;

	if (!word_has_suffix(w, ".slice") || !word_find(w, "kubepods"))
		return false;
	w.n -= strlen(".slice");
	pod = word_find_last(w, "-pod");
	if (!pod)
		return false;
	pod += strlen("-pod");
	return take_uid(pod, (size_t)(w.s + w.n - pod), true, ref);
}

static bool take_id(const char *s, size_t n, struct cgroup_ref *ref)
{
	if (n != ID_DIGITS)
		return false;
	for (size_t i = 0; i < n; i++)
		if (!isdigit((unsigned char)s[i]) && !(s[i] >= 'a' && s[i] <= 'f'))
			return false;
	memcpy(ref->container_id, s, n);
	ref->container_id[n] = '\0';
	return true;
}

/*
 * Takes the id from "<id>", "cri-containerd-<id>.scope", "crio-<id>", "crio-conmon-<id>.scope" or
 * "docker-<id>.scope".
 */
static bool take_container(struct word w, struct cgroup_ref *ref)
{
	const char *id;

	if (word_has_suffix(w, ".scope"))
		w.n -= strlen(".scope");
	if (w.n < ID_DIGITS)
		return false;
	id = w.s + w.n - ID_DIGITS;
	if (id > w.s && id[-1] != '-')
		return false;
	if (!take_id(id, ID_DIGITS, ref))
		return false;
	ref->runtime_helper = word_find((struct word){w.s, w.n - ID_DIGITS}, "conmon") != NULL;
	return true;
}

/*
 * Takes uid and id from "kubepods-burstable-pod<uid>.slice:cri-containerd:<id>". This text is meant
 * for systemd, but some runtimes make a directory with this name.
 */
static bool take_colons(struct word w, struct cgroup_ref *ref)
{
	const char *first = memchr(w.s, ':', w.n), *last = memrchr(w.s, ':', w.n);
	struct cgroup_ref found = {0};

	if (!first || first == last)
		return false;
	if (!take_pod_slice((struct word){w.s, (size_t)(first - w.s)}, &found))
		return false;
	if (!take_id(last + 1, (size_t)(w.s + w.n - last - 1), &found))
		return false;
	*ref = found;
	return true;
}

static bool take_pod(struct word w, bool below_kubepods, struct cgroup_ref *ref)
{
	struct cgroup_ref found = {0};

	if (take_pod_slice(w, &found) || (below_kubepods && w.n > 3 && memcmp(w.s, "pod", 3) == 0 &&
					  take_uid(w.s + 3, w.n - 3, false, &found))) {
		*ref = found;
		return true;
	}
	return false;
}

int proc_cgroup_parse_path(const char *path, struct cgroup_ref *ret)
{
	struct cgroup_ref ref = {0};
	bool below_kubepods = false;
	unsigned pods_depth = 0;
	size_t len = strlen(path);

	if (str_has_suffix(path, " (deleted)"))
		len -= strlen(" (deleted)");
	for (const char *p = path, *end = path + len; p < end;) {
		const char *slash = memchr(p, '/', (size_t)(end - p));
		struct word w = {p, (size_t)((slash ? slash : end) - p)};

		p = slash ? slash + 1 : end;
		if (w.n == 0)
			continue;
		/*
		 * If a container contains a cluster, the path has further pods. The deepest one
		 * counts.
		 */
		if (take_colons(w, &ref) || take_pod(w, below_kubepods, &ref)) {
			below_kubepods = false;
			pods_depth++;
			continue;
		}
		below_kubepods |= word_find(w, "kubepods") != NULL;
		if (ref.container_id[0])
			ref.nested = true;
		else if (ref.pod_uid[0])
			take_container(w, &ref);
	}
	if (!ref.pod_uid[0])
		return -ENOENT;
	ref.pods_depth = pods_depth;
	*ret = ref;
	return 0;
}
