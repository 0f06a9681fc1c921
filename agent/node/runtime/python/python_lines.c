/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the line of a code unit. Formats: Objects/lnotab_notes.txt of 3.9 (co_lnotab) and 3.10
 * (co_linetable), Objects/locations.md of 3.11 and later.
 */
#include "node/runtime/python/python.h"

#define UNIT_BYTES 2

/*
 * Finds the line of an address in a table of pairs of bytes: the first byte is added to the
 * address, the second one to the line.
 */
static uint32_t line_of_lnotab(const uint8_t *table, size_t n, int64_t line, uint32_t address)
{
	uint32_t at = 0;

	for (size_t i = 0; i + 1 < n; i += 2) {
		at += table[i];
		if (at > address)
			break;
		line += (int8_t)table[i + 1];
	}
	return line > 0 ? (uint32_t)line : 0;
}

/*
 * Finds the line of an address in a table of pairs of bytes. Here, unlike in the table above, a
 * pair's line is that of the addresses that the pair adds. -128: these addresses have no line.
 */
static uint32_t line_of_ranges(const uint8_t *table, size_t n, int64_t line, uint32_t address)
{
	uint32_t end = 0;

	for (size_t i = 0; i + 1 < n; i += 2) {
		int8_t delta = (int8_t)table[i + 1];
		bool none = delta == -128;

		if (!none)
			line += delta;
		end += table[i];
		if (end > address)
			return none || line < 0 ? 0 : (uint32_t)line;
	}
	return 0;
}

/* Reads a number, which has six bits in each byte, the lowest first. 0x40: another byte follows. */
static uint32_t read_varint(const uint8_t **p, const uint8_t *end)
{
	uint32_t value = 0;

	for (unsigned shift = 0; *p < end; shift += 6) {
		uint8_t byte = *(*p)++;

		if (shift < 32)
			value |= (uint32_t)(byte & 0x3f) << shift;
		if (!(byte & 0x40))
			break;
	}
	return value;
}

static int64_t read_svarint(const uint8_t **p, const uint8_t *end)
{
	uint32_t value = read_varint(p, end);

	return value & 1 ? -(int64_t)(value >> 1) : (int64_t)(value >> 1);
}

enum { ONE_LINE_0 = 10, ONE_LINE_2 = 12, NO_COLUMNS = 13, LONG = 14, NO_LOCATION = 15 };

/*
 * Finds the line of a code unit. An entry of the table is 0x80 | kind << 3 | units - 1, then bytes
 * that depend on the kind. In these bytes the top bit is not set.
 */
static uint32_t line_of_locations(const uint8_t *table, size_t n, int64_t line, uint32_t unit)
{
	const uint8_t *p = table, *end = table + n;
	uint64_t last = 0;

	while (p < end) {
		uint8_t head = *p++, kind = head >> 3 & 15;

		if (kind >= ONE_LINE_0 && kind <= ONE_LINE_2)
			line += kind - ONE_LINE_0;
		else if (kind == NO_COLUMNS || kind == LONG)
			line += read_svarint(&p, end);
		last += (head & 7) + 1;
		if (last > unit)
			return kind == NO_LOCATION || line < 0 || line > INT32_MAX ? 0
										   : (uint32_t)line;
		while (p < end && !(*p & 0x80))
			p++;
	}
	return 0;
}

uint32_t runtime_python_line(unsigned minor, const uint8_t *table, size_t n, uint32_t first_line,
			     int unit)
{
	if (unit < 0)
		return first_line;
	if (n == 0)
		return minor <= 9 ? first_line : 0;
	if (minor >= 11)
		return line_of_locations(table, n, first_line, (uint32_t)unit);
	if (minor == 10)
		return line_of_ranges(table, n, first_line, (uint32_t)unit * UNIT_BYTES);
	return line_of_lnotab(table, n, first_line, (uint32_t)unit * UNIT_BYTES);
}
