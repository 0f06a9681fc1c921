/* SPDX-License-Identifier: Apache-2.0 */
/* The picture of a flame graph: where its frames are, what it leaves out, and hostile names. */
#include "cli/svg.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static char *draw(const struct svg_frame *frames, size_t n, bool difference)
{
	const struct svg_picture p = {.title = "on-cpu of <web>",
				      .unit = "microseconds",
				      .difference = difference,
				      .frames = frames,
				      .n = n};
	struct buf b = {0};

	cli_svg_write(&p, &b);
	return buf_steal(&b);
}

static size_t count(const char *text, const char *part)
{
	size_t n = 0;

	for (const char *at = text; (at = strstr(at, part)); at += strlen(part))
		n++;
	return n;
}

static void assert_has(const char *text, const char *part)
{
	if (!strstr(text, part))
		fail_msg("'%s' is not in %s", part, text);
}

static void frames_lie_below_their_callers(void **state)
{
	static const struct svg_frame frames[] = {
		{"web", "root", 0, 1000, 0},	   {"main", "app", 1, 750, 0},
		{"[k] read", "kernel", 2, 250, 0}, {"malloc", "library", 2, 125, 0},
		{"other", "app", 1, 250, 0},
	};
	_cleanup_free_ char *svg = draw(frames, ARRAY_SIZE(frames), false);

	(void)state;
	assert_true(str_has_prefix(svg, "<svg xmlns=\"http://www.w3.org/2000/svg\""));
	assert_true(str_has_suffix(svg, "</svg>\n"));
	assert_has(svg, "<title>on-cpu of &lt;web&gt;</title>");
	assert_has(svg, "<g><title>web: 1.00 ms (100.00 %)</title><rect x=\"10.00\" y=\"56\" "
			"width=\"1200.00\" height=\"16\" fill=\"#");
	assert_has(svg, "<g><title>main: 750.00 us (75.00 %)</title><rect x=\"10.00\" y=\"73\" "
			"width=\"900.00\"");
	assert_has(svg, "<g><title>[k] read: 250.00 us (25.00 %)</title><rect x=\"10.00\" y=\"90\" "
			"width=\"300.00\"");
	assert_has(svg, "<g><title>malloc: 125.00 us (12.50 %)</title><rect x=\"310.00\" y=\"90\" "
			"width=\"150.00\"");
	assert_has(svg, "<g><title>other: 250.00 us (25.00 %)</title><rect x=\"910.00\" y=\"73\" "
			"width=\"300.00\"");
	assert_has(svg, "<text x=\"313.00\" y=\"102\">malloc</text>");
	assert_null(strstr(svg, "left out"));
	assert_null(strstr(svg, "<script"));
}

static void colour_of(const char *svg, const char *name, unsigned *r, unsigned *g, unsigned *b)
{
	_cleanup_free_ char *title = xasprintf("<title>%s:", name);
	const char *at = strstr(svg, title);

	assert_non_null(at);
	assert_int_equal(sscanf(strstr(at, "fill="), "fill=\"#%2x%2x%2x\"", r, g, b), 3);
}

/* The colour of a frame is that of its kind, as on the page; of waits, that of the cause. */
static void kinds_have_colours(void **state)
{
	static const struct svg_frame frames[] = {
		{"a", "root", 0, 1000, 0},
		{"b", "unnamed", 1, 500, 0},
		{"[wait: lock]", "wait", 2, 1, 0},
		{"c", "kernel", 1, 500, 0},
	};
	_cleanup_free_ char *svg = draw(frames, ARRAY_SIZE(frames), false);
	unsigned r, g, b;

	(void)state;
	colour_of(svg, "b", &r, &g, &b);
	assert_true(r == g && g == b); /* grey */
	colour_of(svg, "[wait: lock]", &r, &g, &b);
	assert_true(r == b && r > g); /* hue 300: magenta */
	colour_of(svg, "c", &r, &g, &b);
	assert_true(r > g && g > b); /* hue 16: orange */
}

static void labels_fit_into_their_frames(void **state)
{
	static const struct svg_frame frames[] = {
		{"root", "root", 0, 1200, 0},
		{"a_function_of_25_letters_", "app", 1, 73, 0}, /* ten letters */
		{"\xe5\x87\xbd\xe6\x95\xb0\xe5\x90\x8d\xe7\xa7\xb0\xe9\x95\xbf", "app", 1, 60, 0},
		{"narrow", "app", 1, 20, 0},
	};
	_cleanup_free_ char *svg = draw(frames, ARRAY_SIZE(frames), false);

	(void)state;
	assert_has(svg, ">a_functi..</text>");
	/* eight letters: three characters of two letters each and the dots */
	assert_has(svg, ">\xe5\x87\xbd\xe6\x95\xb0\xe5\x90\x8d..</text>");
	assert_int_equal(count(svg, "</text></g>"), 3); /* not the narrow one */
}

static void narrow_frames_are_left_out(void **state)
{
	static const struct svg_frame frames[] = {
		{"root", "root", 0, 120000, 0},
		{"a", "app", 1, 10, 0},
		{"b", "app", 1, 9, 0},
		{"c", "app", 2, 9, 0},
	};
	_cleanup_free_ char *svg = draw(frames, ARRAY_SIZE(frames), false);

	(void)state;
	assert_int_equal(count(svg, "<g>"), 2);
	assert_has(svg, "width=\"0.10\"");
	assert_has(svg, "2 frames are left out: they are narrower than a tenth of a pixel.");
	/* the picture ends below the deepest frame that is drawn */
	assert_has(svg, "height=\"120\"");
}

static void a_picture_has_at_most_20000_frames(void **state)
{
	const size_t n = 30001;
	_cleanup_free_ struct svg_frame *frames = xcalloc(n, sizeof(*frames));
	_cleanup_free_ char *svg = NULL;

	(void)state;
	for (size_t i = 0; i < n; i++) /* 30 levels of 1,000 frames of 1.2 pixels and less */
		frames[i] = (struct svg_frame){"f", "app", i ? (uint32_t)((i - 1) % 30 + 1) : 0,
					       (int64_t)(30000 - (i + 29) % 30), 0};
	frames[0].value = 30000000;
	svg = draw(frames, n, false);
	/* not a part of the 1,000 frames of a level, because they are as wide as each other */
	assert_int_equal(count(svg, "<g>"), 19001);
	assert_has(svg, "11000 frames are left out: the picture has the 19001 widest.");
}

static void hostile_names_are_text(void **state)
{
	_cleanup_free_ char *longest = xmalloc(65537);
	struct svg_frame frames[] = {
		{"root", "root", 0, 1000, 0},
		{"</title><script>alert(1)</script>&\"'", "app", 1, 500, 0},
		{"a\x1b[2J\n\x01\xff\xe2\x80\xae"
		 "b",
		 "app", 1, 300, 0},
		{longest, "\"/>", 1, 200, 0},
	};
	_cleanup_free_ char *svg = NULL;

	(void)state;
	memset(longest, 'x', 65536);
	longest[65536] = '\0';
	svg = draw(frames, ARRAY_SIZE(frames), false);
	assert_has(svg, "<title>&lt;/title&gt;&lt;script&gt;alert(1)&lt;/script&gt;&amp;&quot;'");
	assert_has(svg, "<title>a [2J  \xef\xbf\xbd\xef\xbf\xbd"
			"b: ");
	assert_null(strstr(svg, "<script"));
	assert_null(strstr(svg, "\"/>\""));
	assert_has(svg, "xxx...: ");
	assert_true(strlen(svg) < 5000);
	for (const char *c = svg; *c; c++)
		assert_true((unsigned char)*c >= ' ' || *c == '\n');
}

/* Width: the mean of both shares, so that what has gone is seen, too. */
static void a_difference_has_colours(void **state)
{
	static const struct svg_frame frames[] = {
		{"web", "root", 0, 1000, 500},
		{"grown", "app", 1, 500, 125},
		{"same", "app", 1, 500, 250},
		{"gone", "app", 1, 0, 125},
	};
	_cleanup_free_ char *svg = draw(frames, ARRAY_SIZE(frames), true);

	(void)state;
	assert_has(svg, "<title>web: 1.00 ms (100.00 %) now, 500.00 us (100.00 %) before</title>");
	assert_has(svg,
		   "<title>grown: 500.00 us (50.00 %) now, 125.00 us (25.00 %) before</title>"
		   "<rect x=\"10.00\" y=\"73\" width=\"450.00\" height=\"16\" fill=\"#f69d95\"");
	assert_has(svg, "width=\"600.00\" height=\"16\" fill=\"#f2f2f2\"");
	assert_has(svg, "<rect x=\"1060.00\" y=\"73\" width=\"150.00\" height=\"16\" fill=\"#");
	assert_has(svg, "Red: a greater share than before.");
}

/* "a;x" is of the same frame as "a"; "a b" is another one, although it lies between the two. */
static void folded_stacks_are_drawn(void **state)
{
	char folded[] = "web;a b 100\nweb;a;[k] x 300\nweb;a 400\nother;a;[k] x 200\nbroken\n";
	struct buf b = {0};

	(void)state;
	cli_svg_write_folded(folded, "t", "microseconds", &b);
	assert_int_equal(count(b.data, "<g>"), 8);
	assert_has(b.data, "<title>all: 1.00 ms (100.00 %)</title>");
	assert_has(b.data, "<title>other: 200.00 us (20.00 %)</title><rect x=\"10.00\" y=\"73\"");
	assert_has(b.data, "<title>web: 800.00 us (80.00 %)</title><rect x=\"250.00\" y=\"73\"");
	assert_has(b.data, "<title>a: 700.00 us (70.00 %)</title><rect x=\"250.00\" y=\"90\"");
	assert_has(b.data, "<title>[k] x: 300.00 us (30.00 %)</title><rect x=\"250.00\" y=\"107\"");
	assert_has(b.data, "<title>a b: 100.00 us (10.00 %)</title><rect x=\"1090.00\" y=\"90\"");
	buf_done(&b);
}

/* The prefix of a folded frame says its kind, and so its colour. */
static void folded_frames_have_the_colours_of_their_kinds(void **state)
{
	char folded[] = "web;[k] read 300\nweb;[module] 300\n";
	struct buf svg = {0};
	unsigned r, g, b;

	(void)state;
	cli_svg_write_folded(folded, "t", "microseconds", &svg);
	colour_of(svg.data, "[k] read", &r, &g, &b);
	assert_true(r > g && g > b); /* orange */
	colour_of(svg.data, "[module]", &r, &g, &b);
	assert_true(r == g && g == b); /* grey: it has no name */
	buf_done(&svg);
}

static void nothing_is_a_picture_too(void **state)
{
	_cleanup_free_ char *svg = draw(NULL, 0, true);

	(void)state;
	assert_true(str_has_suffix(svg, "</svg>\n"));
	assert_int_equal(count(svg, "<g>"), 0);
	assert_has(svg, ">There are no samples.</text>");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(frames_lie_below_their_callers),
		cmocka_unit_test(kinds_have_colours),
		cmocka_unit_test(labels_fit_into_their_frames),
		cmocka_unit_test(narrow_frames_are_left_out),
		cmocka_unit_test(a_picture_has_at_most_20000_frames),
		cmocka_unit_test(hostile_names_are_text),
		cmocka_unit_test(a_difference_has_colours),
		cmocka_unit_test(folded_stacks_are_drawn),
		cmocka_unit_test(folded_frames_have_the_colours_of_their_kinds),
		cmocka_unit_test(nothing_is_a_picture_too),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
