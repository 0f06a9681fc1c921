/* SPDX-License-Identifier: Apache-2.0 */
/* The table of runtimes, and the words and texts of their errors and of those of their walks. */
#include "node/runtime/internal.h"

static const struct runtime_ops *const table[_PF_RUNTIME_MAX] = {
#define X(NAME, name) [PF_RUNTIME_##NAME] = &runtime_##name##_runtime,
	PF_RUNTIMES(X) PF_CONTEXTS(X)
#undef X
};

const struct runtime_ops *const *runtime_table = table;

const struct runtime_ops *runtime_ops(enum pf_runtime_kind k)
{
	return (unsigned)k < ARRAY_SIZE(table) ? runtime_table[k] : NULL;
}

bool runtime_is_context(enum pf_runtime_kind k)
{
	switch (k) {
#define X(NAME, name) case PF_RUNTIME_##NAME:
		PF_CONTEXTS(X)
#undef X
		return true;
	default:
		return false;
	}
}

static const char *const troubles[_PF_TROUBLE_MAX] = {
#define X(name, text) [PF_TROUBLE_##name] = text,
	PF_TROUBLES(X)
#undef X
};

const char *runtime_trouble_word(uint64_t trouble)
{
	return trouble < ARRAY_SIZE(troubles) ? troubles[trouble] : "unknown";
}

char *runtime_trouble_text(enum pf_runtime_kind k, uint64_t trouble)
{
	const struct runtime_ops *ops = runtime_ops(k);

	return xasprintf("[%s: %s]", ops ? ops->name : "runtime", runtime_trouble_word(trouble));
}

const char *runtime_error_word(int error)
{
	switch (error) {
	case -ESRCH:
		return "process_gone";
	case -EBUSY:
		return "busy";
	case -EFAULT:
		return "not_mapped";
	case -E2BIG:
		return "over_limit";
	case -ESTALE:
		return "changed";
	case -ENOENT:
		return "unknown";
	case -EAGAIN:
		return "not_ready";
	case -EINVAL:
	case -EBADMSG:
		return "inconsistent";
	case -EACCES:
	case -EPERM:
		return "not_permitted";
	case -ENOTSUP:
		return "not_supported";
	default:
		return "other";
	}
}
