/* SPDX-License-Identifier: Apache-2.0 */
/* The table of the formats of files: query.h has its rows, this file what writes each of them. */
#include "hub/query/query.h"
#include "lib/otlp/otlp.h"

#define writer_FOLDED	  profile_folded_writer
#define writer_PPROF	  profile_pprof_writer
#define writer_SPEEDSCOPE profile_speedscope_writer
#define writer_OTLP	  otlp_file_writer

static const struct file_format_info formats[_FILE_FORMAT_MAX] = {
#define X(NAME, name, ending, type, flags, title, about)                                           \
	[FILE_##NAME] = {name,	QUERY_FILES_PATH name, ending, type, flags, title,                 \
			 about, writer_##NAME},
	QUERY_FILE_FORMATS(X)
#undef X
};

const struct file_format_info *query_file_format(enum file_format f)
{
	return &formats[f];
}

int query_file_format_from_name(const char *name, enum file_format *ret)
{
	for (int f = 0; f < _FILE_FORMAT_MAX; f++) {
		if (!streq(formats[f].name, name))
			continue;
		*ret = (enum file_format)f;
		return 0;
	}
	return -ENOENT;
}
