/* SPDX-License-Identifier: Apache-2.0 */
/* For tests only: pods that the API server shows. Include it once, after testwatches.h. */
#pragma once

/* Puts a pod into the watch of pods. The caller owns the object, which must stay valid. */
static inline json_t *put_pod(const char *ns, const char *name, const char *uid, const char *node)
{
	struct kube_watch *w = watch_of("/pods");
	_cleanup_free_ char *key = xasprintf("%s/%s", ns, name);
	json_t *obj = json_pack("{s:{s:s, s:s, s:s}, s:{s:s}}", "metadata", "namespace", ns, "name",
				name, "uid", uid, "spec", "nodeName", node);

	keep(w, key, obj);
	w->ops.upsert(key, obj, NULL, w->arg);
	return obj;
}
