/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names in perf maps, as their writers make them:
 * - HotSpot (CodeCache::write_perf_map, codeCache.cpp): Method::external_name(), "long Spin.f(int)", or a stub's name;
 * - V8 (PerfBasicLogger, logging/log.cc): "JS:*f file.js:12:3", kinds of code before the colon, ~ ^ + * tell the compiler;
 * - .NET (PerfMap::LogJITCompiledMethod, perfmap.cpp): "int32 [app] Program::Main(string[])[Tier0]".
 * What has none of these forms is shown as it is.
 */
#include "node/runtime/perfmap.h"

#include <ctype.h>
#include <stdlib.h>

static void add(struct runtime_names *ret, enum frame_kind kind, const char *name, size_t n,
		const char *file, size_t file_n, uint32_t line)
{
	ret->kind = kind;
	runtime_names_add(ret, xstrndup(name, n), file_n ? xstrndup(file, file_n) : NULL, line,
			  false);
}

/* ---- HotSpot ---- */

/* "a.b.C$$Lambda/0x0123.run": the class's dots are slashes in its own form, what is behind a slash stays. */
static char *java_name(const char *class, size_t class_n, const char *method, size_t method_n)
{
	char *name = xasprintf("%.*s::%.*s", (int)class_n, class, (int)method_n, method);

	for (size_t i = 0; i < class_n && name[i] != '/'; i++)
		if (name[i] == '.')
			name[i] = '/';
	return name;
}

/* "RETURNED CLASS.METHOD(TYPE, TYPE)". */
static bool hotspot_method(const char *s, struct runtime_names *ret)
{
	const char *open = strchr(s, '('), *begin, *dot;
	_cleanup_free_ char *name = NULL;

	if (!open || !str_has_suffix(s, ")"))
		return false;
	begin = memrchr(s, ' ', open - s);
	dot = memrchr(s, '.', open - s);
	if (!begin || !dot || dot < begin + 2 || dot + 1 == open)
		return false;
	name = java_name(begin + 1, dot - begin - 1, dot + 1, open - dot - 1);
	add(ret, FRAME_JVM, name, strlen(name), NULL, 0, 0);
	return true;
}

static void hotspot(const char *s, struct runtime_names *ret)
{
	if (!hotspot_method(s, ret)) /* "Interpreter", "StubRoutines (1)" */
		add(ret, strstr(s, "::") ? FRAME_JVM : FRAME_LIBRARY, s, strlen(s), NULL, 0, 0);
}

/* ---- V8 ---- */

static bool has_kind(const char *s, const char *const *kinds, size_t n, const char **ret_rest)
{
	size_t len = strcspn(s, ":");

	for (size_t i = 0; s[len] && i < n; i++) {
		if (strlen(kinds[i]) == len && memcmp(s, kinds[i], len) == 0) {
			*ret_rest = s + len + 1;
			return true;
		}
	}
	return false;
}

/* Takes ":NUMBER" off the end. */
static bool take_last_number(const char *s, size_t *n, uint32_t *ret)
{
	size_t digits = 0;

	while (digits < *n && isdigit((unsigned char)s[*n - 1 - digits]))
		digits++;
	if (digits == 0 || digits > 9 || digits >= *n || s[*n - 1 - digits] != ':')
		return false;
	*ret = (uint32_t)strtoul(s + *n - digits, NULL, 10);
	*n -= digits + 1;
	return true;
}

/* Names ("get size") and files may have spaces: the file begins with the first word that looks like one. */
static size_t file_begin(const char *s, size_t n)
{
	static const char *const begins[] = {
		"/", "file:", "node:", "http:", "https:", "wasm:", "evalm", "[eval", "internal/"};
	size_t last = n;

	for (size_t i = 0; i < n; i++) {
		if (s[i] != ' ')
			continue;
		last = i;
		for (size_t k = 0; k < ARRAY_SIZE(begins); k++)
			if (str_has_prefix(s + i + 1, begins[k]))
				return i;
	}
	return last;
}

static void v8_function(const char *s, struct runtime_names *ret)
{
	size_t n, name_n;
	uint32_t line = 0, column = 0;

	s += strspn(s, "~^+*");
	n = strlen(s);
	if (take_last_number(s, &n, &column) && !take_last_number(s, &n, &line))
		line = column; /* no column */
	name_n = file_begin(s, n);
	if (name_n == 0)
		add(ret, FRAME_APP, "(anonymous)", strlen("(anonymous)"), s + 1, n ? n - 1 : 0,
		    line);
	else
		add(ret, FRAME_APP, s, name_n, s + name_n + 1, name_n < n ? n - name_n - 1 : 0,
		    line);
}

static bool v8(const char *s, struct runtime_names *ret)
{
	static const char *const functions[] = {"JS",	"LazyCompile", "Function",
						"Eval", "Script",      "Callback"};
	static const char *const stubs[] = {"Builtin", "BytecodeHandler", "Stub", "Handler",
					    "RegExp"};
	const char *rest;

	if (has_kind(s, functions, ARRAY_SIZE(functions), &rest))
		v8_function(rest, ret);
	else if (has_kind(s, stubs, ARRAY_SIZE(stubs), &rest) && *rest)
		add(ret, FRAME_LIBRARY, rest, strlen(rest), NULL, 0, 0);
	else
		return false;
	return true;
}

/* ---- .NET ---- */

/* "RETURNED [ASSEMBLY] TYPE::METHOD(TYPES)[TIER]". */
static bool dotnet(const char *s, struct runtime_names *ret)
{
	const char *open = strchr(s, '['), *name = open ? strstr(open, "] ") : NULL, *end;

	if (!name || !str_has_suffix(s, "]"))
		return false;
	name += strlen("] ");
	end = strchr(name, '(');
	if (!end || end == name || !memmem(name, end - name, "::", 2))
		return false;
	add(ret, FRAME_APP, name, end - name, NULL, 0, 0);
	return true;
}

void perf_map_names(const char *line_name, enum perf_map_writer writer, struct runtime_names *ret)
{
	if (writer == PERF_MAP_HOTSPOT)
		hotspot(line_name, ret);
	else if (!v8(line_name, ret) && !dotnet(line_name, ret))
		add(ret, FRAME_APP, line_name, strlen(line_name), NULL, 0, 0);
}
