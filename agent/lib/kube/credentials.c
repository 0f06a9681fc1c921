// SPDX-License-Identifier: Apache-2.0
/*
 * Token, CA, certificate and key of a client, from memory or from files; and the report of files
 * that cannot be used. The files of token and CA have a few KiB. The kubelet keeps them in a tmpfs,
 * so the loop may read them: no disk delays it.
 */
#include <fcntl.h>
#include <stdlib.h>

#include "lib/kube/kube_private.h"

#define MAX_PEM_BYTES	(4 << 20)  /* bytes of a file of a CA, certificate or key */
#define MAX_TOKEN_BYTES (48 << 10) /* bytes; the head of a request has at most 64 KiB */

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

/* ---- token ---- */

static void refuse_token(struct kube_token *t, const char *file, const char *counted,
			 const char *why)
{
	struct field_error e = {0};

	counter_add(counter("kube_credentials_total", "reason", counted), 1);
	field_error_set(&e, "token", "%s: %s", file, why);
	kube_tell_credentials(&t->error, &e);
	t->stat = (struct stat){0};
}

void kube_token_read(struct kube_token *t, const char *file)
{
	_cleanup_free_ char *text = NULL;
	size_t n;
	int r;

	if (!file)
		return;
	t->read_ns = now_mono_ns();
	r = file_read(AT_FDCWD, file, MAX_TOKEN_BYTES, &text, &n);
	if (r < 0) {
		refuse_token(t, file, "token_unreadable", file_error_text(r));
		return;
	}
	while (n && strchr(" \t\r\n", text[n - 1]))
		text[--n] = '\0';
	if (n == 0 || strcspn(text, "\r\n") != n) {
		refuse_token(t, file, "token_empty_or_broken",
			     n ? "has more than one line" : "is empty");
		return;
	}
	kube_tell_credentials(&t->error, NULL);
	free(t->text);
	t->text = TAKE_PTR(text);
}

void kube_token_refresh(struct kube_token *t, const char *file, uint64_t max_age_ns)
{
	struct stat st = {0};

	if (!file)
		return;
	if (stat(file, &st) == 0 && st.st_ino == t->stat.st_ino &&
	    st.st_mtim.tv_sec == t->stat.st_mtim.tv_sec &&
	    st.st_mtim.tv_nsec == t->stat.st_mtim.tv_nsec &&
	    now_mono_ns() - t->read_ns < max_age_ns)
		return;
	t->stat = st;
	kube_token_read(t, file);
}

/* ---- TLS ---- */

/* Gets a PEM text: from its file, or from memory if it has no file. */
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

/* Turns an error of tls_new into one that names the field of the kubeconfig, and its file. */
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
	hash |= 1; /* never 0: the hash 0 means that nothing is loaded */
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
