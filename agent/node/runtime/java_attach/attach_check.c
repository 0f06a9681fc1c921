/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides whether a JVM may be asked. If the decision were wrong, SIGQUIT would kill a JVM that has
 * no handler for it, or make the JVM fill its log.
 */
#include "node/runtime/java_attach/attach.h"

#include <signal.h>
#include <stdlib.h>

#define SWITCH "DisableAttachMechanism"

int runtime_attach_check_version(const char *version, char ret_text[ATTACH_TEXT_BYTES])
{
	unsigned long major = strtoul(version, NULL, 10);

	if (major >= ATTACH_JDK_MIN)
		return 0;
	if (major == 0)
		snprintf(ret_text, ATTACH_TEXT_BYTES, "the version of this JVM is not known");
	else
		snprintf(ret_text, ATTACH_TEXT_BYTES,
			 "JDK %.32s cannot write perf maps: %d and newer can", version,
			 ATTACH_JDK_MIN);
	return -ENOTSUP;
}

/*
 * Returns whether the options switch attaching off. If the option is given several times, the last
 * one counts, as in the JVM.
 */
static bool is_switched_off(const char *words, size_t n)
{
	bool off = false;

	for (const char *p = words; (p = memmem(p, words + n - p, SWITCH, strlen(SWITCH)));
	     p += strlen(SWITCH))
		if (p > words)
			off = p[-1] == '+';
	return off;
}

static bool catches_quit(const char *status)
{
	static const char field[] = "\nSigCgt:\t";
	const char *p = strstr(status, field);

	return p && strtoull(p + strlen(field), NULL, 16) & 1ull << (SIGQUIT - 1);
}

int runtime_attach_check_process(const char *status, const char *words, size_t n,
				 char ret_text[ATTACH_TEXT_BYTES])
{
	static const char field[] = "\nState:\t";
	const char *state = strstr(status, field);

	if (!state || !strchr("RSD", state[strlen(field)])) {
		snprintf(ret_text, ATTACH_TEXT_BYTES, "the process is stopped or ends");
		return -EAGAIN;
	}
	if (!catches_quit(status)) {
		snprintf(ret_text, ATTACH_TEXT_BYTES,
			 "the JVM does not handle SIGQUIT (-Xrs, or it is just starting)");
		return -ENOTSUP;
	}
	if (is_switched_off(words, n)) {
		snprintf(ret_text, ATTACH_TEXT_BYTES, "the JVM runs with -XX:+" SWITCH);
		return -ENOTSUP;
	}
	return 0;
}
