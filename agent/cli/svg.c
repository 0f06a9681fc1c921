/* SPDX-License-Identifier: Apache-2.0 */
/* A flame graph as an SVG picture. */
#include "cli/svg.h"

#include "cli/columns.h"
#include "cli/text.h"
#include "lib/profile/profile.h"

#include <math.h>
#include <stdlib.h>

#define MAX_FRAMES 20000 /* frames of a picture; the narrowest are left out */
#define MIN_WIDTH  0.1	 /* pixels; a narrower frame is left out */
#define WIDTH	   1200. /* pixels of the root */
#define MARGIN	   10
#define ROW	   17	/* pixels from one level to the next */
#define LETTER	   6.65 /* pixels of a letter of a monospaced font of 11 pixels */
#define TOP	   56	/* pixels above the root */

/* ---- geometry ---- */

struct drawing {
	const struct svg_picture *p;
	double *widths;
	double least; /* frames that are narrower are left out */
	uint32_t deepest;
	size_t n_drawn;
};

/* How wide the frame is: its share; of a difference, the mean of its shares now and before. */
static double width_of(const struct svg_picture *p, const struct svg_frame *f)
{
	const struct svg_frame *root = &p->frames[0];
	double now = root->value > 0 ? WIDTH * (double)f->value / (double)root->value : 0,
	       before = root->before > 0 ? WIDTH * (double)f->before / (double)root->before : 0;

	if (!p->difference || root->before <= 0)
		return now;
	return root->value > 0 ? (now + before) / 2 : before;
}

static int widest_first(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? 1 : x > y ? -1 : 0;
}

/* Finds the width that a frame must have, so that at most MAX_FRAMES are drawn. */
static void find_least(struct drawing *d)
{
	_cleanup_free_ double *sorted = xcalloc(d->p->n + 1, sizeof(*sorted));
	size_t n = 0;

	d->least = MIN_WIDTH;
	for (size_t i = 0; i < d->p->n; i++)
		if (d->widths[i] >= MIN_WIDTH)
			sorted[n++] = d->widths[i];
	if (n <= MAX_FRAMES)
		return;
	qsort(sorted, n, sizeof(*sorted), widest_first);
	d->least = nextafter(sorted[MAX_FRAMES], INFINITY);
}

static void measure(struct drawing *d)
{
	const struct svg_picture *p = d->p;

	d->widths = xcalloc(p->n + 1, sizeof(*d->widths));
	for (size_t i = 0; i < p->n; i++)
		d->widths[i] = width_of(p, &p->frames[i]);
	find_least(d);
	for (size_t i = 0; i < p->n; i++)
		if (d->widths[i] >= d->least) {
			d->n_drawn++;
			d->deepest = MAX(d->deepest, p->frames[i].depth);
		}
}

/* ---- colours ---- */

/* The hues and saturations of the page: web/src/flame/colours.ts. */
static const struct {
	const char *kind;
	unsigned hue, saturation;
} colours[] = {
	{"app", 110, 45},	   {"library", 48, 80},	      {"kernel", 16, 80},
	{"jvm", 150, 45},	   {"python", 220, 65},	      {"lua", 255, 50},
	{"cuda", 280, 50},	   {"object", 190, 50},	      {"[wait: runqueue]", 0, 75},
	{"[wait: lock]", 300, 55}, {"[wait: disk]", 30, 55},  {"[wait: socket]", 200, 75},
	{"[wait: pipe]", 175, 55}, {"[wait: poll]", 235, 40}, {"[wait: sleep]", 70, 35},
	{"[wait: gpu]", 140, 65},  {"[wait: other]", 0, 20},  {"process", 210, 30},
	{"thread", 210, 30},	   {"group", 210, 10},	      {"unnamed", 0, 0},
	{"marker", 330, 60},	   {"root", 210, 30},
};

/* hue in degrees; saturation and lightness in percent. SVG viewers know no hsl(). */
static void put_colour(struct buf *out, double hue, double saturation, double lightness)
{
	static const double offsets[] = {0, 8, 4}; /* of red, green and blue */
	double l = lightness / 100, spread = saturation / 100 * MIN(l, 1 - l);

	buf_putc(out, '#');
	for (size_t i = 0; i < ARRAY_SIZE(offsets); i++) {
		double k = fmod(offsets[i] + hue / 30, 12), part = MIN(k - 3, MIN(9 - k, 1.));

		buf_printf(out, "%02x", (unsigned)lround(255 * (l - spread * MAX(part, -1.))));
	}
}

/* The kind gives the hue, and the name the lightness. */
static void put_kind_colour(struct buf *out, const struct svg_frame *f)
{
	const char *kind = streq(f->kind, "wait") ? f->name : f->kind;
	size_t at = 0;

	while (at < ARRAY_SIZE(colours) - 1 && !streq(colours[at].kind, kind))
		at++;
	put_colour(out, colours[at].hue, colours[at].saturation,
		   66 + (double)(hash_str(f->name) % 16));
}

/* Red: the share has grown; blue: it has shrunk; the darker, the greater the change. Else grey. */
static void put_change_colour(struct buf *out, double now, double before)
{
	double greater = MAX(now, before), change = greater > 0 ? (now - before) / greater : 0;

	put_colour(out, change < 0 ? 220 : 5, change == 0 ? 0 : 85, 95 - 35 * fabs(change));
}

/* ---- text ---- */

static void put_escaped(struct buf *out, const char *text)
{
	for (; *text; text++) {
		const char *entity = *text == '&'   ? "&amp;"
				     : *text == '<' ? "&lt;"
				     : *text == '>' ? "&gt;"
				     : *text == '"' ? "&quot;"
						    : NULL;

		if (entity)
			buf_puts(out, entity);
		else
			buf_putc(out, *text);
	}
}

/*
 * Returns how many bytes of the text fit into so many letters. A character that is not ASCII may be
 * as wide as two.
 */
static size_t fitting(const char *text, size_t letters)
{
	size_t n = 0, len;

	for (; text[n]; n += len) {
		size_t wide = (unsigned char)text[n] < 0x80 ? 1 : 2;

		len = MAX(utf8_len(text + n), (size_t)1);
		if (letters < wide)
			break;
		letters -= wide;
	}
	return n;
}

/* Adds as much of the name as the frame has room for. */
static void put_label(struct buf *out, const char *name, double x, double y, double width)
{
	size_t letters = width < 6 ? 0 : (size_t)((width - 6) / LETTER), n = fitting(name, letters);
	_cleanup_free_ char *cut = NULL;

	if (letters < 3)
		return;
	cut = name[n] ? xasprintf("%.*s..", (int)fitting(name, letters - 2), name) : xstrdup(name);
	buf_printf(out, "<text x=\"%.2f\" y=\"%.0f\">", x + 3, y + ROW - 5);
	put_escaped(out, cut);
	buf_puts(out, "</text>");
}

static void put_value(struct buf *out, int64_t v, int64_t whole, const char *unit)
{
	cli_put_short_value(out, v, unit);
	buf_printf(out, " (%.2f %%)", cli_percent(v, whole));
}

/* ---- the picture ---- */

static void put_frame(const struct drawing *d, size_t i, double x, struct buf *out)
{
	const struct svg_picture *p = d->p;
	const struct svg_frame *f = &p->frames[i], *root = &p->frames[0];
	_cleanup_buf_ struct buf name = {0};
	double y = TOP + (double)f->depth * ROW;

	cli_put_name(&name, f->name);
	buf_puts(out, "<g><title>");
	put_escaped(out, name.data ?: "");
	buf_puts(out, ": ");
	put_value(out, f->value, root->value, p->unit);
	if (p->difference) {
		buf_puts(out, " now, ");
		put_value(out, f->before, root->before, p->unit);
		buf_puts(out, " before");
	}
	buf_printf(out, "</title><rect x=\"%.2f\" y=\"%.0f\" width=\"%.2f\" height=\"%d\" fill=\"",
		   x, y, d->widths[i], ROW - 1);
	if (p->difference)
		put_change_colour(out, cli_percent(f->value, root->value),
				  cli_percent(f->before, root->before));
	else
		put_kind_colour(out, f);
	buf_puts(out, "\"/>");
	put_label(out, name.data ?: "", x, y, d->widths[i]);
	buf_puts(out, "</g>\n");
}

static void put_frames(const struct drawing *d, struct buf *out)
{
	/* for each level, where its next frame begins */
	_cleanup_free_ double *next = xcalloc(COLUMNS_MAX_DEPTH + 1, sizeof(*next));

	next[0] = MARGIN;
	for (size_t i = 0; i < d->p->n; i++) {
		uint32_t depth = d->p->frames[i].depth;
		double x = next[depth];

		next[depth] += d->widths[i];
		next[depth + 1] = x;
		if (d->widths[i] >= d->least)
			put_frame(d, i, x, out);
	}
}

static void put_line(struct buf *out, double y, const char *text)
{
	buf_printf(out, "<text x=\"%d\" y=\"%.0f\">", MARGIN, y);
	put_escaped(out, text);
	buf_puts(out, "</text>\n");
}

static void put_left_out(const struct drawing *d, double y, struct buf *out)
{
	size_t n = d->p->n - d->n_drawn;
	_cleanup_free_ char *text = NULL;

	if (d->least > MIN_WIDTH)
		text = xasprintf("%zu frames are left out: the picture has the %zu widest.", n,
				 d->n_drawn);
	else
		text = xasprintf("%zu %s narrower than a tenth of a pixel.", n,
				 n == 1 ? "frame is left out: it is"
					: "frames are left out: they are");
	if (n)
		put_line(out, y, text);
}

void cli_svg_write(const struct svg_picture *p, struct buf *out)
{
	struct drawing d = {.p = p};
	_cleanup_buf_ struct buf title = {0};
	double bottom;

	measure(&d);
	bottom = TOP + (d.n_drawn ? d.deepest + 1 : 0) * ROW;
	cli_put_name(&title, p->title);
	buf_printf(out,
		   "<svg xmlns=\"http://www.w3.org/2000/svg\" version=\"1.1\" width=\"%.0f\" "
		   "height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\" font-family=\"monospace\" "
		   "font-size=\"11\">\n<title>",
		   WIDTH + 2 * MARGIN, bottom + 30, WIDTH + 2 * MARGIN, bottom + 30);
	put_escaped(out, title.data ?: "");
	buf_puts(out, "</title>\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n");
	put_line(out, 20, title.data ?: "");
	if (p->difference && p->n)
		put_line(out, 40,
			 "Red: a greater share than before. Blue: a smaller one. The width is the "
			 "mean of both shares.");
	if (!p->n)
		put_line(out, 40, "There are no samples.");
	put_frames(&d, out);
	put_left_out(&d, bottom + 18, out);
	buf_puts(out, "</svg>\n");
	free(d.widths);
}
