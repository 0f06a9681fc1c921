/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes tags from the attributes of a resource, which name the pod and the process. Ignores
 * attributes that podflame does not use. If a pod has several owners, its tag is the workload.
 */
#include "lib/otlp/decode.h"

#define MAX_TAG_KEY_BYTES 317 /* the longest key of a label in Kubernetes: 253 / 63 */

static void put_tag(struct decode_resource *r, const char *key, const char *value)
{
	for (size_t i = 0; i < r->n_tags; i++) {
		if (streq(r->tags[i].key, key)) {
			r->tags[i].value = value;
			return;
		}
	}
	r->tags[r->n_tags++] = (struct tag){key, value};
}

static void put_owner(struct decode_resource *r, const char *kind, unsigned rank, const char *name)
{
	if (rank >= r->owner_rank)
		return;
	r->owner_rank = rank;
	put_tag(r, "pod_group", name);
	put_tag(r, "pod_group_type", kind);
}

/* Returns the value as text: an integer in decimal. NULL for other types. */
static const char *value_text(struct decoder *d, const struct attr *a)
{
	char number[24];

	if (a->text)
		return a->text;
	if (!a->is_number)
		return NULL;
	snprintf(number, sizeof(number), "%lld", (long long)a->number);
	return profile_batch_str(d->batch, number);
}

static const char *tag_key(struct decoder *d, const char *attr)
{
	const struct attr_name *name = otlp_attr_by_name(attr);
	_cleanup_free_ char *label = NULL;

	if (name)
		return name->tag;
	if (str_has_prefix(attr, ATTR_LABEL)) {
		label = xasprintf(POD_LABEL "%s", attr + strlen(ATTR_LABEL));
		return profile_batch_str(d->batch, label);
	}
	return str_has_prefix(attr, ATTR_TAG) ? profile_batch_str(d->batch, attr + strlen(ATTR_TAG))
					      : NULL;
}

/*
 * Adds a tag, if key and value are within their limits. The limits hold only for tags that podflame
 * keeps. For example, a command line may be long, because it is not kept.
 */
static int put_checked(struct decoder *d, struct decode_resource *r, const char *tag,
		       const char *text, const char *path)
{
	if (strlen(tag) > sizeof(POD_LABEL) - 1 + MAX_TAG_KEY_BYTES)
		return otlp_decode_wrong(d, -E2BIG, path, "a key longer than %d bytes",
					 MAX_TAG_KEY_BYTES);
	if (r->n_tags + 2 >= MAX_RESOURCE_TAGS)
		return otlp_decode_wrong(d, -E2BIG, path, "more than 254 tags");
	put_tag(r, tag, text);
	return 0;
}

static int resource_attr(struct decoder *d, struct decode_resource *r, const char *key,
			 const struct attr *a, const char *path)
{
	const char *kind, *tag = NULL, *text = NULL;
	bool service = streq(key, ATTR_SERVICE) || (!r->app_service && streq(key, ATTR_EXE));
	unsigned rank;

	if (!a->text && !a->is_number)
		return 0; /* such an attribute is not used, so its key may be long */
	kind = otlp_owner_of_attr(key, &rank);
	if (!service && !kind)
		tag = tag_key(d, key);
	if (service || kind || tag || streq(key, ATTR_START)) {
		if (a->text && strlen(a->text) > MAX_TAG_BYTES)
			return otlp_decode_wrong(d, -E2BIG, path, "is longer than %d bytes",
						 MAX_TAG_BYTES);
		text = value_text(d, a);
	}
	if (streq(key, ATTR_PID) && a->is_number && a->number > 0 && a->number <= UINT32_MAX)
		r->process_id = (uint32_t)a->number;
	if (!text)
		return 0;
	if (tag)
		return put_checked(d, r, tag, text, path);
	if (service)
		r->app_service = text;
	else if (kind)
		put_owner(r, kind, rank, text);
	else
		/* if the time is bad, process_start_ns does not change */
		(void)time_parse(text, &r->process_start_ns);
	return 0;
}

int otlp_decode_resource(struct decoder *d, size_t index, const Otlp__Resource *in,
			 struct decode_resource *ret)
{
	ret->owner_rank = UINT32_MAX;
	for (size_t i = 0; in && i < in->n_attributes; i++) {
		const Otlp__KeyValue *kv = in->attributes[i];
		const char *key = kv->key;
		struct attr a = {0};
		char path[128];
		int r;

		snprintf(path, sizeof(path), "resource_profiles[%zu].resource.attributes[%zu]",
			 index, i);
		if (kv->key_strindex)
			r = otlp_decode_string(d, kv->key_strindex, path, &key);
		else
			r = (key = otlp_text_utf8(&d->pool, key)) ? 0 : -E2BIG;
		if (r >= 0)
			r = otlp_decode_value(d, kv->value, path, &a);
		if (r >= 0)
			r = resource_attr(d, ret, key, &a, path);
		if (r < 0)
			return r;
	}
	return 0;
}
