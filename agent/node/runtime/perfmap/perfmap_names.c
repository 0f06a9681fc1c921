/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names in perf maps, in the forms of the programs that write them, in the child. A name of another
 * form is shown unchanged. Allocates no memory.
 * - HotSpot (CodeCache::write_perf_map, codeCache.cpp): Method::external_name(), "long
 *   Spin.f(int)", or a stub's name.
 * - V8 (LinuxPerfBasicLogger, logging/log.cc): "JS:*f file.js:12:3": the kind of code before the
 *   colon, then the compiler.
 * - .NET (PerfMap::LogJITCompiledMethod, perfmap.cpp): "int32 [app]
 *   Program::Main(string[])[Tier0]".
 */
#include "node/runtime/perfmap/perfmap.h"

#include <ctype.h>
#include <stdlib.h>

static void add(struct perf_name *ret, enum frame_kind kind, const char *name, size_t n,
		const char *file, size_t file_n, uint32_t line)
{
	ret->kind = kind;
	ret->line = line;
	ret->name_n = MIN(n, sizeof(ret->name));
	memcpy(ret->name, name, ret->name_n);
	ret->file_n = MIN(file_n, sizeof(ret->file));
	if (ret->file_n)
		memcpy(ret->file, file, ret->file_n);
}

/* ---- HotSpot ---- */

/*
 * Makes "a/b/C$$Lambda/0x0123::run" from "a.b.C$$Lambda/0x0123.run": dots of the class become
 * slashes, as in the JVM's own form. Dots after a slash stay.
 */
static void java_name(struct perf_name *ret, const char *class, size_t class_n, const char *method,
		      size_t method_n)
{
	static char name[PERF_NAME_MAX];
	size_t n = MIN(class_n, sizeof(name) - 2);

	method_n = MIN(method_n, sizeof(name) - 2 - n);
	memcpy(name, class, n);
	memcpy(name + n, "::", 2);
	memcpy(name + n + 2, method, method_n);
	for (size_t i = 0; i < n && name[i] != '/'; i++)
		if (name[i] == '.')
			name[i] = '/';
	add(ret, FRAME_JVM, name, n + 2 + method_n, NULL, 0, 0);
}

/* Reads "RETURNED CLASS.METHOD(TYPE, TYPE)". */
static bool hotspot_method(const char *s, struct perf_name *ret)
{
	const char *open = strchr(s, '('), *begin, *dot;

	if (!open || !str_has_suffix(s, ")"))
		return false;
	begin = memrchr(s, ' ', open - s);
	dot = memrchr(s, '.', open - s);
	if (!begin || !dot || dot < begin + 2 || dot + 1 == open)
		return false;
	java_name(ret, begin + 1, dot - begin - 1, dot + 1, open - dot - 1);
	return true;
}

static void hotspot(const char *s, struct perf_name *ret)
{
	if (!hotspot_method(s, ret)) /* for example "Interpreter" or "StubRoutines (1)" */
		add(ret, strstr(s, "::") ? FRAME_JVM : FRAME_LIBRARY, s, strlen(s), NULL, 0, 0);
}

/* ---- V8 ---- */

/*
 * Returns the text after "KIND:"; NULL: s has none of these kinds. "Script::run" is a name of
 * another language.
 */
static const char *behind_kind(const char *s, const char *const *kinds, size_t n)
{
	size_t len = strcspn(s, ":");

	for (size_t i = 0; s[len] && s[len + 1] != ':' && i < n; i++)
		if (strlen(kinds[i]) == len && memcmp(s, kinds[i], len) == 0)
			return s + len + 1;
	return NULL;
}

/*
 * Returns the text after the mark of the compiler: ~ interpreter, ^ baseline, + Maglev, * Turbofan.
 * Since Node 24 a ' follows the mark if the code is for one context only. Since Node 26 an o is
 * before the mark if the code was entered in a loop. Only one mark is skipped, because a function's
 * name may be + or *, too.
 */
static const char *behind_marker(const char *s)
{
	const char *p = s + (*s == 'o');

	if (!*p || !strchr("~^+*", *p))
		return s;
	p++;
	return p + (*p == '\'' && (p[-1] == '+' || p[-1] == '*'));
}

/* Removes ":NUMBER" from the end. */
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

static bool begins_with_any(const char *s, const char *const *begins, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (str_has_prefix(s, begins[i]))
			return true;
	return false;
}

/*
 * Returns the last space in s[0, n) that is before the character `slash`; slash 0: the last space
 * of all. n: there is none.
 */
static size_t last_space(const char *s, size_t n, char slash)
{
	for (size_t i = n; i > 0; i--)
		if (s[i - 1] == ' ' && (!slash || s[i] == slash))
			return i - 1;
	return n;
}

static size_t find_word(const char *s, size_t n, const char *word)
{
	const char *p = memmem(s, n, word, strlen(word));

	return p ? (size_t)(p - s) : n;
}

/*
 * Returns where " FILE" begins in "NAME FILE"; n: there is no file. NAME and FILE may have spaces
 * ("get size", "GET /users", "/srv/my app/a.js").
 * - A URL has no space, so it is the last word. Only data: may have spaces.
 * - An absolute path begins at the last word that begins with a slash.
 * - Any other file is found only if there is one space. Else it stays in the name.
 */
static size_t file_begin(const char *s, size_t n)
{
	static const char *const words[] = {
		"file:", "node:",  "http:", "https:", "wasm:", "blob:", "evalmachine.<anonymous>",
		"[eval", "[stdin]"};
	size_t last = last_space(s, n, '\0'), at;

	if (n == 0 || *s == ' ' || last == n) /* without a name; without a file */
		return n && *s == ' ' ? 0 : n;
	if (last == n - 1) /* a function that eval made: its file is "" */
		return last;
	if (begins_with_any(s + last + 1, words, ARRAY_SIZE(words)) ||
	    memmem(s + last, n - last, "://", 3))
		return last;
	at = find_word(s, n, " data:");
	if (at == n)
		at = find_word(s, n, " [worker eval]");
	if (at == n)
		at = last_space(s, n, '/');
	if (at < n)
		return at;
	at = str_has_prefix(s, "get ") || str_has_prefix(s, "set ") ? strlen("get ") : 0;
	return at < last && memchr(s + at, ' ', last - at) ? n : last;
}

/*
 * Reads "NAME FILE:LINE:COLUMN"; in Node 18 without column. If eval made the function, FILE is "".
 */
static void v8_function(const char *s, struct perf_name *ret)
{
	size_t n, name_n, file_n;
	uint32_t line = 0, column = 0;

	s = behind_marker(s);
	n = strlen(s);
	if (take_last_number(s, &n, &column) && !take_last_number(s, &n, &line))
		line = column;
	name_n = file_begin(s, n);
	file_n = name_n < n ? n - name_n - 1 : 0;
	if (name_n == 0)
		add(ret, FRAME_APP, "(anonymous)", strlen("(anonymous)"), s + 1, file_n, line);
	else
		add(ret, FRAME_APP, s, name_n, s + name_n + 1, file_n, line);
}

/* Reads "NAME-INDEX-COMPILER" of WebAssembly. A function may have several such names. */
static bool v8_wasm(const char *s, struct perf_name *ret)
{
	static const char *const compilers[] = {"-liftoff", "-turbofan"};
	size_t n = strlen(s), digits = 0;

	for (size_t i = 0; i < ARRAY_SIZE(compilers); i++) {
		if (!str_has_suffix(s, compilers[i]))
			continue;
		n -= strlen(compilers[i]);
		while (digits < n && isdigit((unsigned char)s[n - 1 - digits]))
			digits++;
		if (digits == 0 || digits + 1 >= n || s[n - 1 - digits] != '-')
			return false;
		add(ret, FRAME_APP, s, n - digits - 1, NULL, 0, 0);
		return true;
	}
	return false;
}

/*
 * Reads "RegExp:SOURCE"; since Node 24 "RegExp.> src: 'SOURCE' flags: 'FLAGS'". Both are shown as
 * "RegExp:SOURCE".
 */
static bool v8_regexp(const char *s, struct perf_name *ret)
{
	static const char head[] = "RegExp", source[] = " src: '", flags[] = "' flags: '";
	static char name[PERF_NAME_MAX];
	const char *begin, *p;
	size_t n;

	if (!str_has_prefix(s, head))
		return false;
	begin = s + strlen(head);
	if (begin[0] == ':' && begin[1] != ':') {
		add(ret, FRAME_APP, s, strlen(s), NULL, 0, 0);
		return true;
	}
	p = *begin == '.' ? strstr(begin, source) : NULL;
	if (!p || p > begin + strcspn(begin, " "))
		return false;
	p += strlen(source);
	n = strlen(p);
	/* V8 has written the last "' flags: '"; earlier ones belong to the source */
	for (size_t i = n; i > 0; i--)
		if (str_has_prefix(p + i - 1, flags)) {
			n = i - 1;
			break;
		}
	n = MIN(n, sizeof(name) - sizeof(head));
	memcpy(name, head, strlen(head));
	name[strlen(head)] = ':';
	memcpy(name + sizeof(head), p, n);
	add(ret, FRAME_APP, name, sizeof(head) + n, NULL, 0, 0);
	return true;
}

static bool v8(const char *s, struct perf_name *ret)
{
	static const char *const functions[] = {"JS",	"LazyCompile", "Function",
						"Eval", "Script",      "Callback"};
	static const char *const stubs[] = {"Builtin", "BytecodeHandler", "Stub", "Handler"};
	const char *rest = behind_kind(s, functions, ARRAY_SIZE(functions));

	if (rest) {
		if (!v8_wasm(rest, ret))
			v8_function(rest, ret);
		return true;
	}
	rest = behind_kind(s, stubs, ARRAY_SIZE(stubs));
	if (rest && *rest) {
		add(ret, FRAME_LIBRARY, rest, strlen(rest), NULL, 0, 0);
		return true;
	}
	return v8_regexp(s, ret);
}

/* ---- .NET ---- */

/* Reads "RETURNED [ASSEMBLY] TYPE::METHOD(TYPES)[TIER]". */
static bool dotnet(const char *s, struct perf_name *ret)
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

void runtime_perf_map_names(const char *line_name, enum perf_map_writer writer,
			    struct perf_name *ret)
{
	if (writer == PERF_MAP_HOTSPOT)
		hotspot(line_name, ret);
	else if (!v8(line_name, ret) && !dotnet(line_name, ret))
		add(ret, FRAME_APP, line_name, strlen(line_name), NULL, 0, 0);
}
