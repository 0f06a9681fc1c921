/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/pyroscope/heatmap.h"

#include "hub/pyroscope/message.h"

#include <stdlib.h>

typedef int64_t heat_counts[PYROSCOPE_HEAT_ROWS];

void pyroscope_heat_widen(struct pyroscope_heat *h, const struct pyroscope_point *points, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		h->least = MIN(h->least, points[i].value);
		h->greatest = MAX(h->greatest, points[i].value);
	}
}

/* Where the row begins. */
static double row_at(const struct pyroscope_heat *h, size_t row)
{
	const double height = h->greatest > h->least ? (double)h->greatest - (double)h->least : 1;

	return (double)h->least + height * (double)row / PYROSCOPE_HEAT_ROWS;
}

static size_t row_of(const struct pyroscope_heat *h, int64_t value)
{
	size_t row = PYROSCOPE_HEAT_ROWS - 1;

	while (row && row_at(h, row) > (double)value)
		row--;
	return row;
}

static size_t n_slots(const struct pyroscope_heat *h)
{
	return (size_t)((h->end_ms - h->start_ms) / h->step_ms) + 1;
}

static size_t slot_of(const struct pyroscope_heat *h, int64_t end_ms)
{
	const int64_t after = end_ms - h->start_ms;

	if (after <= 0)
		return 0;
	return MIN((size_t)((after + h->step_ms - 1) / h->step_ms), n_slots(h) - 1);
}

static bool has_counts(const int64_t *counts)
{
	size_t row = 0;

	while (row < PYROSCOPE_HEAT_ROWS && !counts[row])
		row++;
	return row < PYROSCOPE_HEAT_ROWS;
}

static void put_slot(struct pyroscope_writer *w, const struct pyroscope_heat *h, size_t slot,
		     const int64_t *counts)
{
	double rows[PYROSCOPE_HEAT_ROWS];

	for (size_t i = 0; i < PYROSCOPE_HEAT_ROWS; i++)
		rows[i] = row_at(h, i);
	pyroscope_put_begin(w, "slots");
	pyroscope_put_int(w, "timestamp", h->start_ms + (int64_t)slot * h->step_ms);
	pyroscope_put_doubles(w, "y_min", rows, PYROSCOPE_HEAT_ROWS);
	pyroscope_put_ints(w, "counts", counts, PYROSCOPE_HEAT_ROWS);
	pyroscope_put_end(w);
}

void pyroscope_put_heat(struct pyroscope_writer *w, const struct pyroscope_heat *h,
			const struct pyroscope_point *points, size_t n)
{
	_cleanup_free_ heat_counts *counts = xcalloc(n_slots(h), sizeof(*counts));

	for (size_t i = 0; i < n; i++)
		counts[slot_of(h, points[i].end_ms)][row_of(h, points[i].value)]++;
	for (size_t i = 0; i < n_slots(h); i++)
		if (has_counts(counts[i]))
			put_slot(w, h, i, counts[i]);
}
