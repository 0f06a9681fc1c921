/* SPDX-License-Identifier: Apache-2.0 */
/*
 * jvm_structs: reads the tables that HotSpot exports for debuggers (runtime/vmStructs.cpp of the
 * JDK, and HotSpotTypeDataBase.java of its serviceability agent). Each table is an array of
 * entries. Other symbols give the size of an entry and the offsets of its columns. The last entry
 * has no name. Runs on the reader's thread.
 */
#include "node/runtime/jvm/jvm.h"

#include <stdlib.h>

#define PREFIX		 "gHotSpotVM"
#define ENTRIES_MAX	 16384 /* entries of one table; JDK 8 to 25 have up to 2,900 */
#define ENTRY_BYTES_MAX	 128   /* bytes of one entry; a table with larger ones is not read */
#define TABLE_NAME_BYTES 160   /* for names such as "GrowableArray<Method*>" */
#define COLUMNS_MAX	 6     /* columns of one table that are read */

enum { COLUMN_TYPE, COLUMN_FIELD, COLUMN_TEXT, COLUMN_STATIC, COLUMN_OFFSET, COLUMN_ADDRESS };
enum { COLUMN_NAME, COLUMN_VALUE };

struct structs_reader {
	struct memory *m;
	int (*symbol)(void *arg, const char *name, uint64_t *ret);
	void *arg;
	struct jvm_structs *s;
	/*
	 * type of the previous entry, and the address of its name: entries of one type are next to
	 * each other
	 */
	char *type;
	uint64_t type_at;
};

struct structs_table {
	const char *name;   /* name of the table, such as "Structs" */
	const char *prefix; /* prefix of the table's other symbols: "StructEntry" */
	const char *columns[COLUMNS_MAX];
	int (*entry)(struct structs_reader *r, const uint64_t *columns);
	unsigned char column_bytes[COLUMNS_MAX];
};

static int symbol_value(struct structs_reader *r, const char *a, const char *b, const char *c,
			uint64_t *ret)
{
	_cleanup_free_ char *name = xasprintf("%s%s%s%s", PREFIX, a, b, c);
	uint64_t address;
	int error = r->symbol(r->arg, name, &address);

	return error < 0 ? error : runtime_memory_u64(r->m, address, ret);
}

static uint64_t column_value(const uint8_t *entry, uint64_t offset, size_t bytes)
{
	uint64_t value = 0;

	memcpy(&value, entry + offset, bytes);
	return value;
}

static int read_entries(struct structs_reader *r, const struct structs_table *t, uint64_t base,
			uint64_t stride, const uint64_t *offsets)
{
	for (size_t i = 0; i < ENTRIES_MAX; i++) {
		uint8_t entry[ENTRY_BYTES_MAX];
		uint64_t columns[COLUMNS_MAX] = {0};
		int error = runtime_memory_read(r->m, base + i * stride, entry, stride);

		if (error < 0)
			return error;
		for (size_t k = 0; k < COLUMNS_MAX && t->columns[k]; k++)
			columns[k] = column_value(entry, offsets[k], t->column_bytes[k]);
		if (columns[0] == 0)
			return 0;
		error = t->entry(r, columns);
		if (error < 0)
			return error;
	}
	return -E2BIG;
}

static int read_table(struct structs_reader *r, const struct structs_table *t)
{
	uint64_t base, stride, offsets[COLUMNS_MAX];
	int error = symbol_value(r, t->name, "", "", &base);

	if (error == 0)
		error = symbol_value(r, t->prefix, "ArrayStride", "", &stride);
	if (error < 0)
		return error;
	/*
	 * 0: libjvm is still being loaded. Its pointers are not relocated yet, or its constructors
	 * have not set the other values yet.
	 */
	if (base == 0 || stride == 0)
		return -EAGAIN;
	if (stride < sizeof(uint64_t) || stride > ENTRY_BYTES_MAX)
		return -EBADMSG;
	for (size_t k = 0; k < COLUMNS_MAX && t->columns[k]; k++) {
		error = symbol_value(r, t->prefix, t->columns[k], "Offset", &offsets[k]);
		if (error < 0)
			return error;
		if (offsets[k] > stride - t->column_bytes[k])
			return -EBADMSG;
	}
	return read_entries(r, t, base, stride, offsets);
}

/* Returns whether the name is in a list that '|' separates. */
static bool is_one_of(const char *name, const char *list)
{
	size_t n = strlen(name);

	for (const char *at = list;; at++) {
		size_t length = strcspn(at, "|");

		if (length == n && memcmp(at, name, n) == 0)
			return true;
		at += length;
		if (*at == '\0')
			return false;
	}
}

static int type_of(struct structs_reader *r, uint64_t at)
{
	char *type;
	int error;

	if (r->type && r->type_at == at)
		return 0;
	error = runtime_memory_string(r->m, at, TABLE_NAME_BYTES, &type);
	if (error < 0)
		return error;
	free(r->type);
	r->type = type;
	r->type_at = at;
	return 0;
}

static void set_field(struct jvm_structs *s, const char *type, const char *field, uint64_t value)
{
#define X(member, types, fields)                                                                   \
	if (s->member == JVM_NONE && is_one_of(type, types) && is_one_of(field, fields))           \
		s->member = value;
	JVM_FIELDS(X)
#undef X
}

/* Adds a stub. The static field at `at` points to its code. */
static int add_stub(struct structs_reader *r, char *name, uint64_t at)
{
	struct jvm_structs *s = r->s;
	uint64_t address;
	int error = runtime_memory_u64(r->m, at, &address);

	if (error < 0 || address == 0 || s->n_stubs == JVM_STUBS_MAX) {
		free(name);
		return error;
	}
	s->stubs = xrealloc(s->stubs, (s->n_stubs + 1) * sizeof(*s->stubs));
	s->stubs[s->n_stubs++] = (struct jvm_stub){.name = name, .address = address};
	return 0;
}

static int on_struct(struct structs_reader *r, const uint64_t *columns)
{
	_cleanup_free_ char *field = NULL, *text = NULL;
	bool is_static = columns[COLUMN_STATIC] != 0;
	int error = type_of(r, columns[COLUMN_TYPE]);

	if (error == 0)
		error = runtime_memory_string(r->m, columns[COLUMN_FIELD], TABLE_NAME_BYTES,
					      &field);
	if (error < 0)
		return error;
	set_field(r->s, r->type, field, columns[is_static ? COLUMN_ADDRESS : COLUMN_OFFSET]);
	if (streq(r->type, "CodeBlob") && streq(field, "_frame_complete_offset")) {
		error = runtime_memory_string(r->m, columns[COLUMN_TEXT], TABLE_NAME_BYTES, &text);
		if (error == 0)
			r->s->complete_short = !streq(text, "int");
	} else if (is_static && streq(r->type, "StubRoutines") && columns[COLUMN_TEXT]) {
		error = runtime_memory_string(r->m, columns[COLUMN_TEXT], TABLE_NAME_BYTES, &text);
		if (error == 0 && streq(text, "address"))
			error = add_stub(r, TAKE_PTR(field), columns[COLUMN_ADDRESS]);
	}
	return error;
}

static int on_type(struct structs_reader *r, const uint64_t *columns)
{
	int error = type_of(r, columns[COLUMN_NAME]);

	if (error < 0)
		return error;
#define X(member, name)                                                                            \
	if (streq(r->type, name))                                                                  \
		r->s->bytes.member = columns[COLUMN_VALUE];
	JVM_TYPES(X)
#undef X
	return 0;
}

static int on_constant(struct structs_reader *r, const uint64_t *columns, int64_t value)
{
	_cleanup_free_ char *text = NULL;
	int error = runtime_memory_string(r->m, columns[COLUMN_NAME], TABLE_NAME_BYTES, &text);

	if (error < 0)
		return error;
#define X(member, names)                                                                           \
	if (is_one_of(text, names))                                                                \
		r->s->constants.member = value;
	JVM_CONSTANTS(X)
#undef X
	return 0;
}

static int on_int(struct structs_reader *r, const uint64_t *columns)
{
	return on_constant(r, columns, (int32_t)columns[COLUMN_VALUE]);
}

static int on_long(struct structs_reader *r, const uint64_t *columns)
{
	return on_constant(r, columns, (int64_t)columns[COLUMN_VALUE]);
}

static const struct structs_table tables[] = {
	{.name = "Structs",
	 .prefix = "StructEntry",
	 .columns = {"TypeName", "FieldName", "TypeString", "IsStatic", "Offset", "Address"},
	 .column_bytes = {8, 8, 8, 4, 8, 8},
	 .entry = on_struct},
	{.name = "Types",
	 .prefix = "TypeEntry",
	 .columns = {"TypeName", "Size"},
	 .column_bytes = {8, 8},
	 .entry = on_type},
	{.name = "IntConstants",
	 .prefix = "IntConstantEntry",
	 .columns = {"Name", "Value"},
	 .column_bytes = {8, 4},
	 .entry = on_int},
	{.name = "LongConstants",
	 .prefix = "LongConstantEntry",
	 .columns = {"Name", "Value"},
	 .column_bytes = {8, 8},
	 .entry = on_long},
};

static void set_nothing(struct jvm_structs *s)
{
	*s = (struct jvm_structs){0};
#define X(member, types, fields) s->member = JVM_NONE;
	JVM_FIELDS(X)
#undef X
#define X(member, type) s->bytes.member = JVM_NONE;
	JVM_TYPES(X)
#undef X
#define X(member, name) s->constants.member = INT64_MIN;
	JVM_CONSTANTS(X)
#undef X
}

static int by_address(const void *a, const void *b)
{
	const struct jvm_stub *x = a, *y = b;

	return x->address < y->address ? -1 : x->address > y->address;
}

int runtime_jvm_structs_read(struct memory *m,
			     int (*symbol)(void *arg, const char *name, uint64_t *ret), void *arg,
			     struct jvm_structs *ret)
{
	struct jvm_structs s;
	struct structs_reader r = {.m = m, .symbol = symbol, .arg = arg, .s = &s};
	int error = 0;

	set_nothing(&s);
	for (size_t i = 0; i < ARRAY_SIZE(tables) && error == 0; i++)
		error = read_table(&r, &tables[i]);
	free(r.type);
	if (error < 0) {
		runtime_jvm_structs_done(&s);
		return error;
	}
	if (s.n_stubs)
		qsort(s.stubs, s.n_stubs, sizeof(*s.stubs), by_address);
	*ret = s;
	return 0;
}

void runtime_jvm_structs_done(struct jvm_structs *s)
{
	for (size_t i = 0; i < s->n_stubs; i++)
		free(s->stubs[i].name);
	free(s->stubs);
	s->stubs = NULL;
	s->n_stubs = 0;
}
