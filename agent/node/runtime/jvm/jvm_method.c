/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the name, file and lines of a Java method: see jvm_method.h. Runs on the reader's thread.
 */
#include "node/runtime/jvm/jvm_method.h"
#include "node/runtime/jvm/jvm_scopes.h"

#include <stdlib.h>
#define uthash_fatal(msg) abort()
#include <uthash.h>

#define METHODS_MAX	 8192	    /* methods kept of one JVM; at this limit, all are forgotten */
#define KEPT_BYTES_MAX	 (8u << 20) /* bytes of the methods kept of a JVM; one has about 400 */
#define CONST_METHOD_MAX 128	    /* bytes of the fixed part of a ConstMethod */
#define LINES_MAX	 (128u << 10)
#define SYMBOL_MAX	 1024 /* bytes of one name; a longer one is cut */
#define ARRAY_DATA	 4    /* an Array<u1> is an int, then the data (array.hpp) */
#define TAG_UTF8	 1    /* JVM_CONSTANT_Utf8 */
#define HAS_LINE_NUMBERS 1    /* ConstMethod::_has_linenumber_table, in all versions */
/* the byte that ends the lines: see CompressedLineNumberReadStream::read_pair */
#define LINES_END    0
#define LINES_ESCAPE 0xff

/* ---- the fixed part of a ConstMethod, as bytes ---- */

struct const_method {
	uint8_t bytes[CONST_METHOD_MAX];
};

static uint16_t u16_of(const struct const_method *c, uint32_t offset)
{
	uint16_t v = 0;

	if (offset + sizeof(v) <= sizeof(c->bytes))
		memcpy(&v, c->bytes + offset, sizeof(v));
	return v;
}

static uint32_t u32_of(const struct const_method *c, uint32_t offset)
{
	return u16_of(c, offset) | (uint32_t)u16_of(c, offset + 2) << 16;
}

static uint64_t u64_of(const struct const_method *c, uint32_t offset)
{
	return u32_of(c, offset) | (uint64_t)u32_of(c, offset + 4) << 32;
}

static int read_const_method(const struct jvm_structs *s, struct memory *m, uint64_t method,
			     uint64_t *ret_address, struct const_method *ret)
{
	uint64_t address;
	int r = runtime_memory_u64(m, method + s->method_const, &address);

	if (r < 0)
		return r;
	if (s->bytes.const_method > sizeof(ret->bytes))
		return -EBADMSG;
	memset(ret, 0, sizeof(*ret));
	r = runtime_memory_read(m, address, ret->bytes, s->bytes.const_method);
	if (r == 0)
		*ret_address = address;
	return r;
}

/* ---- constants and Symbols ---- */

/* Finds the Symbol that is constant `index` of a class. */
static int constant_symbol(const struct jvm_structs *s, struct memory *m, uint64_t pool,
			   uint16_t index, uint64_t *ret)
{
	uint32_t length;
	uint64_t tags;
	uint8_t tag;
	int r = runtime_memory_u32(m, pool + s->pool_length, &length);

	if (r == 0 && index >= length)
		return -EBADMSG;
	if (r == 0)
		r = runtime_memory_u64(m, pool + s->pool_tags, &tags);
	if (r == 0)
		r = runtime_memory_u8(m, tags + ARRAY_DATA + index, &tag);
	if (r == 0 && tag != TAG_UTF8)
		return -EBADMSG;
	return r < 0 ? r
		     : runtime_memory_u64(
			       m, pool + s->bytes.constant_pool + index * sizeof(uint64_t), ret);
}

static int symbol_length(const struct jvm_structs *s, struct memory *m, uint64_t symbol,
			 uint16_t *ret)
{
	return s->symbol_length_ref != JVM_NONE
		       ? runtime_memory_u16(m, symbol + s->symbol_length_ref + sizeof(uint16_t),
					    ret)
		       : runtime_memory_u16(m, symbol + s->symbol_length, ret);
}

/* Reads the parts of a Symbol that never change: its length and its random hash. */
static int symbol_head(const struct jvm_structs *s, struct memory *m, uint64_t symbol,
		       uint64_t *ret)
{
	uint64_t at = s->symbol_hash_ref != JVM_NONE ? s->symbol_hash_ref + sizeof(uint16_t)
						     : s->symbol_hash;
	uint16_t length, hash;
	int r = symbol_length(s, m, symbol, &length);

	if (r == 0)
		r = runtime_memory_u16(m, symbol + at, &hash);
	if (r == 0)
		*ret = (uint64_t)length << 16 | hash;
	return r;
}

static int symbol_text_of(const struct jvm_structs *s, struct memory *m, uint64_t symbol,
			  char **ret)
{
	_cleanup_free_ char *text = NULL;
	uint16_t length;
	int r = symbol_length(s, m, symbol, &length);

	if (r < 0)
		return r;
	if (length == 0)
		return -EBADMSG; /* a name is never empty */
	length = MIN(length, SYMBOL_MAX);
	text = xcalloc(1, length + 1);
	r = runtime_memory_read(m, symbol + s->symbol_body, text, length);
	if (r < 0)
		return r;
	for (char *p = text; p < text + length; p++)
		if (!*p)
			*p = '?';
	*ret = TAKE_PTR(text);
	return 0;
}

static int constant_text(const struct jvm_structs *s, struct memory *m, uint64_t pool,
			 uint16_t index, char **ret)
{
	uint64_t symbol;
	int r = constant_symbol(s, m, pool, index, &symbol);

	return r < 0 ? r : symbol_text_of(s, m, symbol, ret);
}

/* ---- names ---- */

/*
 * Returns the length of a class's name without the suffix that differs between copies of the class.
 */
static size_t stable_length(const char *name)
{
	size_t n = strlen(name), end;
	/*
	 * The name of a hidden class ends in an address (since JDK 15;
	 * ClassFileParser::mangle_hidden_class_name).
	 */
	const char *hidden = strstr(name, "+0x");

	if (!hidden)
		hidden = strstr(name, "/0x");
	if (hidden)
		n = hidden - name;
	/* "$$Lambda$12" ends in a counter (up to JDK 20; InnerClassLambdaMetafactory). */
	for (end = n; end > 0 && name[end - 1] >= '0' && name[end - 1] <= '9';)
		end--;
	if (end < n && end >= 9 && memcmp(name + end - 9, "$$Lambda$", 9) == 0)
		n = end - 1;
	return n;
}

/* Makes "int[][]" from "[[I", and "java/lang/String[]" from "[Ljava/lang/String;" (JVMS 4.3.2). */
static char *array_text(const char *name)
{
	static const char *const types[] = {
		['B'] = "byte", ['C'] = "char", ['D'] = "double", ['F'] = "float",
		['I'] = "int",	['J'] = "long", ['S'] = "short",  ['Z'] = "boolean",
	};
	size_t depth = strspn(name, "[");
	const unsigned char *type = (const unsigned char *)name + depth;
	struct buf b;

	buf_init(&b, 2 * SYMBOL_MAX + 16);
	if (*type == 'L') {
		_cleanup_free_ char *element = xstrdup((const char *)type + 1);

		element[strcspn(element, ";")] = '\0';
		buf_printf(&b, "%.*s", (int)stable_length(element), element);
	} else {
		bool known = *type < ARRAY_SIZE(types) && types[*type];

		buf_puts(&b, known ? types[*type] : "?");
	}
	while (depth--)
		buf_puts(&b, "[]");
	return buf_steal(&b);
}

int runtime_jvm_class_name(const struct jvm *jvm, struct memory *m, uint64_t klass, char **ret)
{
	const struct jvm_structs *s = &jvm->structs;
	_cleanup_free_ char *name = NULL, *text = NULL;
	uint64_t symbol = 0, again, head = 0, head_again;
	int r = runtime_memory_u64(m, klass + s->klass_name, &symbol);

	if (r == 0)
		r = symbol_head(s, m, symbol, &head);
	if (r == 0)
		r = symbol_text_of(s, m, symbol, &name);
	/* The class may have been unloaded meanwhile. */
	if (r == 0)
		r = runtime_memory_u64(m, klass + s->klass_name, &again);
	if (r == 0)
		r = symbol_head(s, m, symbol, &head_again);
	if (r == 0 && (again != symbol || head_again != head))
		r = -ESTALE;
	if (r < 0)
		return r;
	text = name[0] == '[' ? array_text(name)
			      : xasprintf("%.*s", (int)stable_length(name), name);
	*ret = elf_text_clean(text);
	return 0;
}

char *runtime_jvm_name(const char *class_name, const char *method_name)
{
	_cleanup_free_ char *text =
		xasprintf("%.*s::%s", (int)stable_length(class_name), class_name, method_name);

	return elf_text_clean(text);
}

/* ---- line numbers ---- */

static bool next_line(struct jvm_stream *s, int64_t *bci, int64_t *line)
{
	int32_t bci_by, line_by;
	uint8_t b;

	if (s->at == s->end)
		return false;
	b = *s->at++;
	if (b == LINES_END)
		return false;
	if (b != LINES_ESCAPE) {
		*bci += b >> 3;
		*line += b & 7;
		return true;
	}
	if (runtime_jvm_stream_i32(s, &bci_by) < 0 || runtime_jvm_stream_i32(s, &line_by) < 0)
		return false;
	*bci += bci_by;
	*line += line_by;
	return true;
}

/*
 * Returns the line of a bytecode. Like Method::line_number_from_bci, it uses the nearest entry at
 * or before bci. The entries may be in any order.
 */
uint32_t runtime_jvm_line(const uint8_t *lines, size_t n, bool no_zero, int32_t bci)
{
	struct jvm_stream s = {lines, lines + n, no_zero};
	int64_t at = 0, line = 0, best_at = -1, best = 0, wanted = MAX(bci, 0);

	if (n == 0 || bci == JVM_BCI_NONE)
		return 0;
	while (best_at != wanted && next_line(&s, &at, &line))
		if (at <= wanted && at >= best_at && at >= 0) {
			best_at = at;
			best = line;
		}
	/* lines in class files have 16 bits */
	return best > 0 && best <= UINT16_MAX ? (uint32_t)best : 0;
}

static size_t lines_length(const uint8_t *lines, size_t n, bool no_zero)
{
	struct jvm_stream s = {lines, lines + n, no_zero};
	int64_t at = 0, line = 0;

	while (next_line(&s, &at, &line))
		;
	return s.at - lines;
}

/* Reads the line numbers. They come after the bytecodes, and before tables of other kinds. */
static int read_lines(const struct jvm *jvm, struct memory *m, const struct const_method *c,
		      struct jvm_method *ret)
{
	const struct jvm_structs *s = &jvm->structs;
	_cleanup_free_ uint8_t *bytes = NULL;
	uint64_t size = (uint64_t)u32_of(c, s->const_size) * sizeof(uint64_t);
	uint64_t begin = s->bytes.const_method + (uint64_t)u16_of(c, s->const_code_size);
	size_t n;
	int r;

	if (!(u16_of(c, s->const_flags) & HAS_LINE_NUMBERS))
		return 0;
	if (size <= begin)
		return -EBADMSG;
	n = MIN(size - begin, LINES_MAX);
	bytes = xmalloc(n);
	r = runtime_memory_read(m, ret->id.const_method + begin, bytes, n);
	if (r < 0)
		return r;
	n = lines_length(bytes, n, jvm_no_zero(jvm));
	if (n == LINES_MAX) { /* the table may be longer, and a later entry could be nearer */
		runtime_lines_dropped();
		return 0;
	}
	ret->n_lines = n;
	ret->lines = xmemdup(bytes, ret->n_lines);
	return 0;
}

/* ---- methods ---- */

static int identify(const struct jvm_structs *s, struct memory *m, uint64_t method,
		    struct const_method *ret, struct jvm_method_id *id)
{
	uint64_t address = 0, pool;
	uint16_t name;
	int r = read_const_method(s, m, method, &address, ret);

	if (r < 0)
		return r;
	memset(id, 0, sizeof(*id));
	pool = u64_of(ret, s->const_constants);
	name = u16_of(ret, s->const_name);
	id->method = method;
	id->const_method = address;
	id->pool = pool;
	id->sizes = u32_of(ret, s->const_size) | (uint64_t)name << 32 |
		    (uint64_t)u16_of(ret, s->const_code_size) << 48;
	r = runtime_memory_u64(m, pool + s->pool_holder, &id->klass);
	if (r == 0)
		r = runtime_memory_u64(m, id->klass + s->klass_name, &id->class_name);
	if (r == 0)
		r = symbol_head(s, m, id->class_name, &id->class_symbol);
	if (r == 0)
		r = runtime_memory_u64(m, pool + s->bytes.constant_pool + name * sizeof(uint64_t),
				       &id->name);
	return r;
}

/*
 * Returns the index of the constant that is the source file's name; 0: the class has no source
 * file.
 */
static uint16_t source_index(const struct jvm_structs *s, struct memory *m,
			     const struct jvm_method_id *id)
{
	uint16_t index = 0;

	if (s->pool_source_file != JVM_NONE)
		(void)runtime_memory_u16(m, id->pool + s->pool_source_file, &index);
	else if (s->class_source_file != JVM_NONE)
		(void)runtime_memory_u16(m, id->klass + s->class_source_file, &index);
	return index;
}

static void method_done(struct jvm_method *method)
{
	free(method->name);
	free(method->file);
	free(method->lines);
}

static int read_method(const struct jvm *jvm, struct memory *m, const struct const_method *c,
		       struct jvm_method *ret)
{
	const struct jvm_structs *s = &jvm->structs;
	_cleanup_free_ char *class_name = NULL, *name = NULL, *file = NULL;
	uint16_t source = source_index(s, m, &ret->id);
	int r = symbol_text_of(s, m, ret->id.class_name, &class_name);

	if (r == 0)
		r = constant_text(s, m, ret->id.pool, u16_of(c, s->const_name), &name);
	if (r == 0)
		r = read_lines(jvm, m, c, ret);
	if (r < 0)
		return r;
	ret->name = runtime_jvm_name(class_name, name);
	if (source && constant_text(s, m, ret->id.pool, source, &file) == 0)
		ret->file = elf_text_clean(file);
	return 0;
}

/* ---- the cache of methods ---- */

struct known_method {
	struct jvm_method method;
	UT_hash_handle hh;
};
struct jvm_methods {
	struct known_method *known;
	size_t kept_bytes;
};

struct jvm_methods *runtime_jvm_methods_new(void)
{
	return xcalloc(1, sizeof(struct jvm_methods));
}

static void empty(struct jvm_methods *c)
{
	struct known_method *k, *next;

	HASH_ITER (hh, c->known, k, next) {
		HASH_DEL(c->known, k);
		method_done(&k->method);
		free(k);
	}
	runtime_cache_set(&c->kept_bytes, 0);
}

struct jvm_methods *runtime_jvm_methods_free(struct jvm_methods *c)
{
	if (c)
		empty(c);
	free(c);
	return NULL;
}

static size_t kept_bytes(const struct jvm_method *m)
{
	return sizeof(struct known_method) + strlen(m->name) + (m->file ? strlen(m->file) : 0) +
	       m->n_lines;
}

int runtime_jvm_methods_get(struct jvm_methods *c, const struct jvm *jvm, struct memory *m,
			    uint64_t method, const struct jvm_method **ret)
{
	const struct jvm_structs *s = &jvm->structs;
	struct const_method fixed;
	struct jvm_method_id id, again;
	struct known_method *k;
	int r = identify(s, m, method, &fixed, &id);

	if (r < 0)
		return r;
	HASH_FIND(hh, c->known, &id, sizeof(id), k);
	if (k) {
		*ret = &k->method;
		return 0;
	}
	k = xcalloc(1, sizeof(*k));
	k->method.id = id;
	r = read_method(jvm, m, &fixed, &k->method);
	/* The method's class may have been unloaded meanwhile. */
	if (r == 0)
		r = identify(s, m, method, &fixed, &again);
	if (r == 0 && memcmp(&id, &again, sizeof(id)) != 0)
		r = -ESTALE;
	if (r < 0) {
		method_done(&k->method);
		free(k);
		return r;
	}
	if (HASH_COUNT(c->known) >= METHODS_MAX ||
	    !runtime_cache_has_room(c->kept_bytes, kept_bytes(&k->method), KEPT_BYTES_MAX))
		empty(c);
	runtime_cache_set(&c->kept_bytes, c->kept_bytes + kept_bytes(&k->method));
	HASH_ADD(hh, c->known, method.id, sizeof(k->method.id), k);
	*ret = &k->method;
	return 0;
}
