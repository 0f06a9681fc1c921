/* SPDX-License-Identifier: Apache-2.0 */
/* Private to query/: what the readers of all bodies share. */
#pragma once

#include "hub/query/query.h"

/*
 * Parses a body, and checks the types of the fields that requests share. The caller frees *ret.
 */
int query_body_parse(const char *body, size_t n, json_t **ret, struct field_error *reterr);
/* Checks the types of the fields that requests share. */
int query_body_check(const json_t *body, struct field_error *reterr);
/* Checks that the fields are there that DeepFlow demands. */
int query_body_required(const json_t *body, struct field_error *reterr);
/*
 * *ret is the canonical name of the tag by which samples are grouped, or their sums over time. The
 * caller frees it.
 */
int query_group_parse(const char *name, bool over_time, char **ret, struct field_error *reterr);
/* Reads the fields that describe the selection. The caller frees r, also after an error. */
int query_body_selection(const json_t *body, struct tracing_request *r, struct field_error *reterr);
