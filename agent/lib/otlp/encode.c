/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A batch -> an ExportProfilesServiceRequest: one ResourceProfiles per process and set of tags.
 * Texts, frames and stacks that may repeat are in the dictionary.
 */
#include "lib/otlp/encode.h"

/* ---- resources ---- */

/* The key is in the dictionary: Collector 0.150 takes a key beside the number 0 as "". */
static void add_attr(struct encoder *e, Otlp__Resource *r, const char *key, Otlp__AnyValue *value)
{
	Otlp__KeyValue *kv = NEW(e, KeyValue, key_value);

	kv->key_strindex = otlp_put_string(e, key);
	kv->value = value;
	r->attributes[r->n_attributes++] = kv;
}

static void add_tag(struct encoder *e, Otlp__Resource *r, const struct tag *t)
{
	const struct attr_name *name = otlp_attr_by_tag(t->key);
	_cleanup_free_ char *key = NULL;
	int64_t number;

	if (name && !name->number) {
		add_attr(e, r, name->attr, otlp_encode_text(e, t->value));
	} else if (name && otlp_text_is_number(t->value, &number)) {
		add_attr(e, r, name->attr, otlp_encode_int(e, number));
	} else {
		if (str_has_prefix(t->key, POD_LABEL))
			key = xasprintf(ATTR_LABEL "%s", t->key + strlen(POD_LABEL));
		else
			key = xasprintf(ATTR_TAG "%s", t->key);
		add_attr(e, r, key, otlp_encode_text(e, t->value));
	}
}

static void add_tags(struct encoder *e, Otlp__Resource *r, const struct profile *p)
{
	const char *kind = profile_tag_get(p, "pod_group_type");
	const char *owner = kind ? otlp_attr_of_owner(kind) : NULL, *group;

	group = owner ? profile_tag_get(p, "pod_group") : NULL;
	for (size_t i = 0; i < p->tags.n; i++) {
		const struct tag *t = &p->tags.items[i];

		if (!t->value)
			continue;
		if (!group || !str_has_prefix(t->key, "pod_group"))
			add_tag(e, r, t);
		else if (streq(t->key, "pod_group"))
			add_attr(e, r, owner, otlp_encode_text(e, group));
		else if (!streq(t->key, "pod_group_type"))
			add_tag(e, r, t);
	}
}

Otlp__Resource *otlp_encode_resource(struct encoder *e, const struct profile *p)
{
	Otlp__Resource *r = NEW(e, Resource, resource);

	r->attributes = otlp_pool_alloc(&e->pool, (p->tags.n + 3) * sizeof(*r->attributes));
	if (p->app_service)
		add_attr(e, r, ATTR_SERVICE, otlp_encode_text(e, p->app_service));
	if (p->process_id)
		add_attr(e, r, ATTR_PID, otlp_encode_int(e, p->process_id));
	if (p->process_start_ns) {
		char text[64], second[32];

		time_format(p->process_start_ns, second);
		second[strcspn(second, "Z")] = '\0';
		snprintf(text, sizeof(text), "%s.%09uZ", second,
			 (unsigned)(p->process_start_ns % NSEC_PER_SEC));
		add_attr(e, r, ATTR_START, otlp_encode_text(e, text));
	}
	add_tags(e, r, p);
	return r;
}

Otlp__InstrumentationScope *otlp_encode_scope(struct encoder *e)
{
	Otlp__InstrumentationScope *scope = NEW(e, InstrumentationScope, instrumentation_scope);

	scope->name = otlp_pool_str(&e->pool, "podflame");
	return scope;
}

static Otlp__ScopeProfiles *put_resource(struct encoder *e, const struct profile *p)
{
	Otlp__ResourceProfiles *row;
	struct id *id;

	buf_reset(&e->key);
	buf_printf(&e->key, "%s%c%u %llu", p->app_service ? p->app_service : "", 0, p->process_id,
		   (unsigned long long)p->process_start_ns);
	for (size_t i = 0; i < p->tags.n; i++) /* '\0' ends each text in the key */
		buf_printf(&e->key, "%c%s%c%s", 0, p->tags.items[i].key, 0,
			   p->tags.items[i].value ? p->tags.items[i].value : "");
	id = otlp_ids_get(&e->resources, &e->pool, e->key.data, e->key.len);
	row = id->row;
	if (!row) {
		row = id->row = NEW(e, ResourceProfiles, resource_profiles);
		row->resource = otlp_encode_resource(e, p);
		row->n_scope_profiles = 1;
		row->scope_profiles = otlp_pool_alloc(&e->pool, sizeof(*row->scope_profiles));
		row->scope_profiles[0] = NEW(e, ScopeProfiles, scope_profiles);
		row->scope_profiles[0]->scope = otlp_encode_scope(e);
	}
	return row->scope_profiles[0];
}

/* ---- profiles ---- */

/*
 * Whether a reader can compute the number of samples from value and period. If so, the number is
 * not sent.
 */
static bool count_derivable(const struct profile *p, const struct profile_sample *s)
{
	int64_t total_ns;

	return p->event == EVENT_ON_CPU && p->period_ns && s->n_samples &&
	       !__builtin_mul_overflow(s->value, 1000, &total_ns) && total_ns > 0 &&
	       total_ns < INT64_C(1) << 53 && /* a double has this value exactly */
	       (uint64_t)total_ns / p->period_ns == s->n_samples &&
	       (uint64_t)total_ns % p->period_ns == 0;
}

/* Puts a sample's labels as attributes into out. Returns their number. */
static size_t put_labels(struct encoder *e, const struct profile_labels *labels, int32_t *out)
{
	size_t n = 0;

	for (enum profile_label l = 0; l < _LABEL_MAX; l++)
		if (labels->values[l])
			out[n++] = otlp_put_attr(e, profile_label_info(l)->otlp_attr,
						 labels->values[l], NULL);
	return n;
}

Otlp__Sample *otlp_encode_sample(struct encoder *e, const struct profile *p,
				 const struct profile_sample *s)
{
	Otlp__Sample *out = NEW_IN(&e->samples, Sample, sample);
	int32_t *attrs = otlp_pool_alloc(&e->samples, (6 + _LABEL_MAX) * sizeof(*attrs));
	size_t n = 0;

	out->stack_index = otlp_put_stack(e, s->stack);
	out->link_index = (int32_t)s->link; /* 0 means "no link" in the batch and on the wire */
	if (s->thread_comm)
		attrs[n++] = otlp_put_attr(e, ATTR_THREAD, s->thread_comm, NULL);
	if (s->main_thread)
		attrs[n++] = otlp_put_attr(e, ATTR_MAIN_THREAD, NULL, NULL);
	if (s->process_comm)
		attrs[n++] = otlp_put_attr(e, ATTR_PROCESS, s->process_comm, NULL);
	if (s->cpu >= 0)
		attrs[n++] = otlp_put_attr(e, ATTR_CPU, NULL, &(int64_t){s->cpu});
	if (s->wait)
		attrs[n++] = otlp_put_attr(e, ATTR_WAIT, profile_wait_name(s->wait), NULL);
	if (s->labels)
		n += put_labels(e, s->labels, attrs + n);
	if (!count_derivable(p, s))
		attrs[n++] = otlp_put_attr(e, ATTR_COUNT, NULL, &(int64_t){(int64_t)s->n_samples});
	out->attribute_indices = attrs;
	out->n_attribute_indices = n;
	out->values = otlp_pool_alloc(&e->samples, sizeof(*out->values));
	out->values[0] = s->value;
	out->n_values = 1;
	return out;
}

static int32_t put_count(struct encoder *e, const char *name, uint64_t count)
{
	return otlp_put_attr(e, name, NULL, &(int64_t){(int64_t)MIN(count, (uint64_t)INT64_MAX)});
}

static void put_profile_attrs(struct encoder *e, Otlp__Profile *out, const struct profile *p)
{
	int32_t *attrs = otlp_pool_alloc(&e->pool, (2 * p->n_losses + 4) * sizeof(*attrs));
	size_t n = 0;

	attrs[n++] = otlp_put_attr(e, ATTR_EVENT, profile_event_info(p->event)->name, NULL);
	if (p->estimate_ppm)
		attrs[n++] = put_count(e, ATTR_ESTIMATE, p->estimate_ppm);
	if (p->estimate_error)
		attrs[n++] = put_count(e, ATTR_ERROR, p->estimate_error);
	if (e->notes)
		attrs[n++] = otlp_put_attr(e, ATTR_NOTES, e->notes, NULL);
	for (size_t i = 0; i < p->n_losses; i++) {
		const struct loss *l = &p->losses[i];
		_cleanup_free_ char *samples = xasprintf(ATTR_LOSS_N "%s", l->reason);
		_cleanup_free_ char *time = xasprintf(ATTR_LOSS_NS "%s", l->reason);

		if (l->n_samples || !l->time_ns)
			attrs[n++] = put_count(e, samples, l->n_samples);
		if (l->time_ns)
			attrs[n++] = put_count(e, time, l->time_ns);
	}
	out->attribute_indices = attrs;
	out->n_attribute_indices = n;
}

static Otlp__ValueType *value_type(struct encoder *e, const char *type, const char *unit)
{
	Otlp__ValueType *v = NEW(e, ValueType, value_type);

	v->type_strindex = otlp_put_string(e, type);
	v->unit_strindex = otlp_put_string(e, unit);
	return v;
}

Otlp__Profile *otlp_encode_profile(struct encoder *e, const struct profile *p)
{
	static const uint8_t no_id[sizeof(p->id)];
	const struct event_info *info = profile_event_info(p->event);
	Otlp__Profile *out = NEW(e, Profile, profile);

	out->sample_type = value_type(e, info->otlp_sample_type, info->unit);
	out->time_unix_nano = p->start_ns;
	out->duration_nano = p->end_ns - p->start_ns;
	if (p->period_ns && p->event == EVENT_ON_CPU) {
		out->period_type = value_type(e, "cpu", "nanoseconds");
		out->period = (int64_t)p->period_ns;
	}
	if (memcmp(p->id, no_id, sizeof(no_id)) != 0) { /* an id of zeros is not valid */
		out->profile_id.len = sizeof(p->id);
		out->profile_id.data = (uint8_t *)p->id;
	}
	put_profile_attrs(e, out, p);
	return out;
}

static Otlp__Profile *whole_profile(struct encoder *e, const struct profile *p)
{
	Otlp__Profile *out = otlp_encode_profile(e, p);

	out->n_samples = p->n_samples;
	out->samples = otlp_pool_alloc(&e->samples, p->n_samples * sizeof(*out->samples));
	for (size_t i = 0; i < p->n_samples; i++)
		out->samples[i] = otlp_encode_sample(e, p, &p->samples[i]);
	return out;
}

/*
 * Appends p to the profiles of a scope. If their array is full, doubles it; its memory belongs to
 * the pool.
 */
static void scope_add(struct encoder *e, Otlp__ScopeProfiles *s, Otlp__Profile *p)
{
	size_t n = s->n_profiles;

	if ((n & (n - 1)) == 0) {
		Otlp__Profile **more = otlp_pool_alloc(&e->pool, (n ? 2 * n : 1) * sizeof(*more));

		if (n)
			memcpy(more, s->profiles, n * sizeof(*more));
		s->profiles = more;
	}
	s->profiles[s->n_profiles++] = p;
}

/* ---- the whole request ---- */

struct buf_appender {
	ProtobufCBuffer base;
	struct buf *out;
};

static void append(ProtobufCBuffer *b, size_t n, const uint8_t *p)
{
	buf_add(((struct buf_appender *)b)->out, p, n);
}

static int pack(const Otlp__ExportProfilesServiceRequest *req, struct buf *out)
{
	struct buf_appender to = {{append}, out};
	size_t n = otlp__export_profiles_service_request__get_packed_size(req);

	if (n > OTLP_MAX_BYTES || (out->max_bytes && out->len + n > out->max_bytes))
		return -E2BIG;
	otlp__export_profiles_service_request__pack_to_buffer(req, &to.base);
	return out->failed ? -E2BIG : 0;
}

void otlp_encoder_begin(struct encoder *e, const struct batch *b)
{
	e->batch = b;
	e->stacks = otlp_pool_alloc(&e->pool, b->n_stacks * sizeof(*e->stacks));
	e->stack_rows = otlp_pool_alloc(&e->pool, (b->n_stacks + 1) * sizeof(*e->stack_rows));
	e->stack_rows++; /* stack_rows[-1] is row 0 */
}

void otlp_encoder_done(struct encoder *e)
{
	struct ids *tables[] = {&e->strings,   &e->attrs,     &e->mappings, &e->functions,
				&e->locations, &e->resources, &e->frames};

	for (size_t i = 0; i < ARRAY_SIZE(tables); i++)
		otlp_ids_done(tables[i]);
	buf_done(&e->key);
	otlp_pool_done(&e->pool);
	otlp_pool_done(&e->samples);
}

int otlp_encode(const struct batch *b, struct buf *ret_bytes)
{
	Otlp__ExportProfilesServiceRequest req = OTLP__EXPORT_PROFILES_SERVICE_REQUEST__INIT;
	_cleanup_(otlp_encoder_done) struct encoder e = {0};
	size_t n_resources;

	otlp_encoder_begin(&e, b);
	for (size_t i = 0; i < b->n_profiles; i++)
		scope_add(&e, put_resource(&e, b->profiles[i]), whole_profile(&e, b->profiles[i]));
	req.resource_profiles =
		(Otlp__ResourceProfiles **)otlp_encode_rows(&e, &e.resources, NULL, &n_resources) +
		1;
	req.n_resource_profiles = n_resources - 1;
	req.dictionary = otlp_encode_dictionary(&e);
	return pack(&req, ret_bytes);
}
