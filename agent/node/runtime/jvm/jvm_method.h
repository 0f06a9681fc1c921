/* SPDX-License-Identifier: Apache-2.0 */
/*
 * jvm_method: what a Java method is called, where it was written, and on which line a bytecode of it is:
 * Method -> ConstMethod -> ConstantPool -> InstanceKlass and Symbols.
 */
#pragma once

#include "node/runtime/jvm/jvm.h"

/*
 * What tells a method from any other that was or will be at its address: Symbols of names have a random
 * hash. Compared byte by byte.
 */
struct jvm_method_id {
	uint64_t method, const_method, pool, klass;
	uint64_t class_name, name; /* Symbols */
	uint64_t class_symbol;	   /* what the first of them says of itself */
	uint64_t sizes;
};

struct jvm_method {
	struct jvm_method_id id;
	char *name;	/* "java/lang/String::hashCode" */
	char *file;	/* "String.java"; NULL: not known */
	uint8_t *lines; /* compressed line numbers; NULL: none */
	size_t n_lines;
};

/* Methods that were read; full: emptied. */
struct jvm_methods;
struct jvm_methods *runtime_jvm_methods_new(void);
struct jvm_methods *runtime_jvm_methods_free(struct jvm_methods *c);
/* *ret belongs to c, until the next get. -EBADMSG: no method is there. */
int runtime_jvm_methods_get(struct jvm_methods *c, const struct jvm *jvm, struct memory *m, uint64_t method,
		    const struct jvm_method **ret);

/* Numbers without bytes of 0: see jvm_scopes.h. */
static inline bool jvm_no_zero(const struct jvm *jvm)
{
	return jvm->major >= 20;
}

#define JVM_BCI_NONE INT32_MIN
/* 0: not known. Other bci < 0: the method's entry. */
uint32_t runtime_jvm_line(const uint8_t *lines, size_t n, bool no_zero, int32_t bci);

/* A class's and a method's name as they are shown, cleaned; a new string. */
char *runtime_jvm_name(const char *class_name, const char *method_name);
/* Of a Klass*, as it is shown: "java/lang/String", "byte[]"; a new string. */
int runtime_jvm_class_name(const struct jvm *jvm, struct memory *m, uint64_t klass, char **ret);
