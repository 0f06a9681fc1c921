/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests HotSpot's tables as a hostile process may write them: with wrong values of symbols and
 * columns.
 */
#include "node/runtime/jvm/jvm.h"

#include <setjmp.h>
#include <cmocka.h>

#define BASE	0x10000u
#define STRIDE	48u
#define ENTRIES (BASE + 0x800) /* address of the entries of all tables */

/* The symbols are words in memory, in the order in which the code first asks for them. */
static struct {
	uint8_t bytes[0x2000];
	size_t n_symbols;
	const char *changed; /* the symbol to which the test gives another value */
	uint64_t value;
} vm;

static void put(uint64_t at, const void *p, size_t n)
{
	memcpy(vm.bytes + (at - BASE), p, n);
}

static int read_vm(void *arg, uint64_t address, void *to, size_t n)
{
	(void)arg;
	if (address < BASE || address - BASE > sizeof(vm.bytes) ||
	    n > sizeof(vm.bytes) - (address - BASE))
		return -EFAULT;
	memcpy(to, vm.bytes + (address - BASE), n);
	return 0;
}

/*
 * Returns the value of a symbol. The columns are in the order of vmStructs.hpp. In tables with two
 * columns, these have the offsets 0 and 8.
 */
static uint64_t value_of(const char *name)
{
	static const struct {
		const char *end;
		uint64_t value;
	} ends[] = {
		{"ArrayStride", STRIDE},	{"TypeNameOffset", 0},
		{"FieldNameOffset", 8},		{"TypeStringOffset", 16},
		{"IsStaticOffset", 24},		{"EntryOffsetOffset", 32},
		{"EntryAddressOffset", 40},	{"EntryNameOffset", 0},
		{"EntrySizeOffset", 8},		{"EntryValueOffset", 8},
		{"gHotSpotVMStructs", ENTRIES},
	};

	if (vm.changed && streq(name, vm.changed))
		return vm.value;
	for (size_t i = 0; i < ARRAY_SIZE(ends); i++)
		if (str_has_suffix(name, ends[i].end))
			return ends[i].value;
	return ENTRIES + STRIDE; /* a table that has only its last entry */
}

static int symbol(void *arg, const char *name, uint64_t *ret)
{
	uint64_t value = value_of(name);

	(void)arg;
	*ret = BASE + 8 * vm.n_symbols++;
	assert_true(*ret + sizeof(value) <= ENTRIES);
	put(*ret, &value, sizeof(value));
	return 0;
}

static int read_tables(const char *changed, uint64_t value, struct jvm_structs *ret)
{
	struct memory m = {.read = read_vm, .budget_bytes = MEMORY_BUDGET};
	const uint64_t entry[] = {BASE + 0x1000, BASE + 0x1020, 0, 0, 24, 0};

	memset(&vm, 0, sizeof(vm));
	vm.changed = changed;
	vm.value = value;
	put(ENTRIES, entry, sizeof(entry));
	put(BASE + 0x1000, "Method", 7);
	put(BASE + 0x1020, "_constMethod", 13);
	return runtime_jvm_structs_read(&m, symbol, NULL, ret);
}

static void fields_have_their_offsets(void **state)
{
	struct jvm_structs s;

	(void)state;
	assert_int_equal(read_tables(NULL, 0, &s), 0);
	assert_int_equal(s.method_const, 24);
	assert_true(s.pool_tags == JVM_NONE);
	runtime_jvm_structs_done(&s);
}

static void columns_lie_in_their_entries(void **state)
{
	static const uint64_t strides[] = {1, 4, 7, 8, 47, 129, UINT64_MAX};
	static const uint64_t offsets[] = {41, 48, 1u << 20, UINT64_MAX - 3, UINT64_MAX};
	struct jvm_structs s;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(strides); i++)
		assert_int_equal(read_tables("gHotSpotVMStructEntryArrayStride", strides[i], &s),
				 -EBADMSG);
	for (size_t i = 0; i < ARRAY_SIZE(offsets); i++)
		assert_int_equal(read_tables("gHotSpotVMStructEntryTypeNameOffset", offsets[i], &s),
				 -EBADMSG);
	assert_int_equal(read_tables("gHotSpotVMStructEntryArrayStride", 0, &s), -EAGAIN);
	assert_int_equal(read_tables("gHotSpotVMStructs", 0, &s), -EAGAIN);
	assert_int_equal(read_tables("gHotSpotVMStructs", 8, &s), -EFAULT);
}

/* With such small entries, an offset near 2^64 would count as inside of an entry. */
static void entries_are_not_smaller_than_a_word(void **state)
{
	struct jvm_structs s;

	(void)state;
	assert_int_equal(read_tables("gHotSpotVMTypeEntryArrayStride", 4, &s), -EBADMSG);
	assert_int_equal(read_tables("gHotSpotVMTypeEntryArrayStride", 8, &s), -EBADMSG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fields_have_their_offsets),
		cmocka_unit_test(columns_lie_in_their_entries),
		cmocka_unit_test(entries_are_not_smaller_than_a_word),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
