// SPDX-License-Identifier: Apache-2.0
/*
 * CA, certificate and key of a client, from memory or from files; and the report of files that
 * cannot be used.
 */
#include <fcntl.h>

#include "lib/kube/kube_private.h"

#define MAX_PEM_BYTES (4 << 20)

static kube_credentials_fn *on_credentials;

void kube_on_credentials(kube_credentials_fn *fn)
{
	on_credentials = fn;
}

void kube_tell_credentials(struct field_error *told, const struct field_error *now)
{
	const struct field_error before = *told;

	*told = now ? *now : (struct field_error){0};
	if (!on_credentials ||
	    (streq(before.path, told->path) && streq(before.reason, told->reason)))
		return;
	if (now)
		on_credentials(now->path, now->reason);
	else
		on_credentials(before.path, NULL);
}

/* PEM text from memory or from its file. The file wins. */
static int pem_of(const char *file, const char *text, const char *field, char **ret,
		  struct field_error *reterr)
{
	int r;

	if (!file) {
		*ret = xstrdup(text);
		return 0;
	}
	r = file_read(AT_FDCWD, file, MAX_PEM_BYTES, ret, NULL);
	if (r < 0)
		field_error_set(reterr, field, "%s: %s", file, file_error_text(r));
	return r;
}

/* Makes an error of tls_new name the field of the kubeconfig, and its file. */
static int refuse_tls(const struct kube_config *c, const struct field_error *e, int r,
		      struct field_error *reterr)
{
	const struct {
		const char *part, *field, *file;
	} parts[] = {{"ca", "certificate-authority", c->ca_file},
		     {"certificate", "client-certificate", c->cert_file},
		     {"key", "client-key", c->key_file}};

	for (size_t i = 0; i < ARRAY_SIZE(parts); i++)
		if (streq(e->path, parts[i].part))
			return field_error_set(reterr, parts[i].field, "%s%s%s",
					       parts[i].file ? parts[i].file : "",
					       parts[i].file ? ": " : "", e->reason);
	field_error_set(reterr, "tls", "%s", strerror(-r));
	return r;
}

int kube_load_tls(const struct kube_config *c, uint64_t known_hash, uint64_t *ret_hash,
		  struct tls **ret, struct field_error *reterr)
{
	_cleanup_free_ char *ca = NULL, *cert = NULL, *key = NULL;
	struct field_error e = {0};
	struct tls_config t;
	uint64_t hash;
	int r;

	r = pem_of(c->ca_file, c->ca_pem, "certificate-authority", &ca, reterr);
	if (r == 0)
		r = pem_of(c->cert_file, c->cert_pem, "client-certificate", &cert, reterr);
	if (r == 0)
		r = pem_of(c->key_file, c->key_pem, "client-key", &key, reterr);
	if (r < 0)
		return r;
	hash = hash_str(ca ?: "") ^ hash_str(cert ?: "") * 3 ^ hash_str(key ?: "") * 5;
	hash |= 1; /* 0: nothing loaded */
	if (hash == known_hash)
		return -EALREADY;
	t = (struct tls_config){.ca_pem = ca,
				.ca_name = c->ca_file,
				.cert_pem = cert,
				.key_pem = key,
				.insecure = c->insecure};
	r = tls_new(&t, false, ret, &e);
	if (r < 0)
		return refuse_tls(c, &e, r, reterr);
	*ret_hash = hash;
	return 0;
}
