/* SPDX-License-Identifier: Apache-2.0 */
/*
 * jvm_method finds the name of a Java method, its source file, and the line of a bytecode. It
 * follows Method -> ConstMethod -> ConstantPool -> InstanceKlass and Symbols. Runs on the reader's
 * thread.
 */
#pragma once

#include "node/runtime/jvm/jvm.h"

/*
 * Identifies a method among all methods that ever had the same address, because each Symbol has a
 * random hash. Ids are compared byte by byte.
 */
struct jvm_method_id {
	uint64_t method, const_method, pool, klass;
	uint64_t class_name, name; /* addresses of Symbols */
	uint64_t class_symbol;	   /* length and hash of the class's Symbol */
	uint64_t sizes;
};

struct jvm_method {
	struct jvm_method_id id;
	char *name;	/* "java/lang/String::hashCode" */
	char *file;	/* "String.java"; NULL: not known */
	uint8_t *lines; /* compressed line numbers; NULL: the method has none */
	size_t n_lines;
};

/* A cache of methods that were read. When it is full, it is emptied. */
struct jvm_methods;
struct jvm_methods *runtime_jvm_methods_new(void);
struct jvm_methods *runtime_jvm_methods_free(struct jvm_methods *c);
/*
 * Finds the method at an address. *ret belongs to c, and is valid until the next call. -EBADMSG: no
 * method is at that address.
 */
int runtime_jvm_methods_get(struct jvm_methods *c, const struct jvm *jvm, struct memory *m,
			    uint64_t method, const struct jvm_method **ret);

/* Returns whether encoded numbers have no byte 0: see struct jvm_stream. */
static inline bool jvm_no_zero(const struct jvm *jvm)
{
	return jvm->major >= 20;
}

#define JVM_BCI_NONE INT32_MIN
/*
 * Returns the line of a bytecode; 0: not known. bci JVM_BCI_NONE has no line. Any other bci below 0
 * is the method's entry.
 */
uint32_t runtime_jvm_line(const uint8_t *lines, size_t n, bool no_zero, int32_t bci);

/* Returns the name of a method with its class as it is shown, cleaned; a new string. */
char *runtime_jvm_name(const char *class_name, const char *method_name);
/* Finds the name of a Klass* as it is shown: "java/lang/String", "byte[]"; a new string. */
int runtime_jvm_class_name(const struct jvm *jvm, struct memory *m, uint64_t klass, char **ret);
