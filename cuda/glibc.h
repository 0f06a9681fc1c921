/* SPDX-License-Identifier: Apache-2.0 */
/*
 * glibc: the library runs in containers with any glibc from 2.17 on, even if it was built with a
 * newer one. glibc 2.32 and 2.34 moved these functions from libpthread and libdl into libc, under a
 * new version of their names. This header asks for the old version, which newer releases of glibc
 * keep. In an old glibc the functions are in libpthread.so.0 and libdl.so.2, so the library needs
 * both files (rules.mk); in a new glibc both are empty. The test old_glibc_is_enough checks each
 * symbol.
 *
 * A build with a sanitizer asks for the newest version, because sanitizers replace only functions
 * of that version.
 */
#pragma once

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define OLD_GLIBC(function) __asm__(".symver " #function ", " #function "@GLIBC_2.2.5")
OLD_GLIBC(dlopen);
OLD_GLIBC(dlsym);
OLD_GLIBC(pthread_attr_setstacksize);
OLD_GLIBC(pthread_create);
OLD_GLIBC(pthread_sigmask);
#undef OLD_GLIBC
#endif
