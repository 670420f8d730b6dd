#!/usr/bin/env python3
"""Writes libcuda.a, libcublas.a, libcublasLt.a, libcurand.a and libnvrtc.a into a folder.

Each function that cudarc declares (symbols.txt) becomes a trampoline: its first call opens the real library,
remembers the function's address and jumps there. Without the library, or without the function in it, the call
returns that library's own code for this, so a binary linked against these archives starts on a machine without
a driver and finds out politely. x86-64 only; a function missing from symbols.txt is a link error, never a crash.

usage: shim.py SYMBOLS OUT_DIR
"""
import collections
import pathlib
import subprocess
import sys
import typing


class Library(typing.NamedTuple):
    opens: list[str]  # file names, the first that opens is taken
    absent: int  # what every function returns when none opens
    lacking: int  # what a function returns that the library found does not have
    needless: tuple[str, ...] = ()  # functions that succeed and do nothing when none opens


LIBRARIES = {
    "cublasLt": Library(["libcublasLt.so.13", "libcublasLt.so.12"], absent=1, lacking=15),
    "cublas": Library(["libcublas.so.13", "libcublas.so.12"], absent=1, lacking=15),
    # Noise comes from elsewhere: a generator is only made because candle makes one for each device.
    "curand": Library(["libcurand.so.10"], absent=204, lacking=100,
                      needless=("curandCreateGenerator", "curandDestroyGenerator", "curandSetStream",
                                "curandSetPseudoRandomGeneratorSeed")),
    "nvrtc": Library(["libnvrtc.so.13", "libnvrtc.so.12"], absent=1, lacking=1),
    "cuda": Library(["libcuda.so.1"], absent=100, lacking=500),
}

RESOLVER = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>
void *shim_{lib}_address[{count}];
static const char *const symbol[] = {{{symbols}}};
static void *handle;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static long absent(void) {{ return {absent}; }}
static long lacking(void) {{ return {lacking}; }}
static long needless(void) {{ return 0; }}
static const char *const needless_symbol[] = {{{needless}NULL}};
static void *(*stand_in)(const char *);
/* What stands in for functions of this library where it is absent: NULL for those that nothing does. */
void shim_{lib}_set_stand_in(void *(*find)(const char *)) {{ stand_in = find; }}
int shim_{lib}_is_there(void);
static void *without_library(const char *name) {{
    for (size_t i = 0; needless_symbol[i]; i++)
        if (!strcmp(name, needless_symbol[i])) return (void *)needless;
    void *found = stand_in ? stand_in(name) : NULL;
    return found ? found : (void *)absent;
}}
static void open_library(void) {{
    static const char *const names[] = {{{names}}};
    for (size_t i = 0; !handle && i < sizeof names / sizeof *names; i++)
        handle = dlopen(names[i], RTLD_NOW | RTLD_GLOBAL);
}}
void *shim_{lib}_resolve(long i) {{
    pthread_once(&once, open_library);
    void *found = handle ? dlsym(handle, symbol[i]) : without_library(symbol[i]);
    found = found ? found : (void *)lacking;
    __atomic_store_n(&shim_{lib}_address[i], found, __ATOMIC_RELEASE);
    return found;
}}
int shim_{lib}_is_there(void) {{
    pthread_once(&once, open_library);
    return handle != NULL;
}}
"""

TRAMPOLINE = """
.globl {name}
.type {name}, @function
{name}:
    movq shim_{lib}_address+{offset}(%rip), %r11
    testq %r11, %r11
    je 1f
    jmp *%r11
1:  pushq ${index}
    jmp shim_{lib}_first_call
"""

INTEGER_ARGUMENTS = ["%rdi", "%rsi", "%rdx", "%rcx", "%r8", "%r9"]


def first_call(lib):
    """Saves the argument registers, resolves the symbol whose index was pushed, restores them and jumps."""
    lines = [f"shim_{lib}_first_call:"]
    lines += [f"    pushq {register}" for register in INTEGER_ARGUMENTS]
    lines += ["    subq $128, %rsp"]
    lines += [f"    movups %xmm{i}, {16 * i}(%rsp)" for i in range(8)]
    lines += ["    movq 176(%rsp), %rdi", f"    call shim_{lib}_resolve", "    movq %rax, %r11"]
    lines += [f"    movups {16 * i}(%rsp), %xmm{i}" for i in range(8)]
    lines += ["    addq $128, %rsp"]
    lines += [f"    popq {register}" for register in reversed(INTEGER_ARGUMENTS)]
    lines += ["    addq $8, %rsp", "    jmp *%r11", '.section .note.GNU-stack,"",@progbits', ""]
    return "\n".join(lines)


def library_of(symbol):
    return next((lib for lib in LIBRARIES if lib != "cuda" and symbol.startswith(lib)), "cuda")


def quoted(names):
    return ", ".join(f'"{name}"' for name in names)


def resolver(lib, symbols):
    library = LIBRARIES[lib]
    return RESOLVER.format(lib=lib, count=len(symbols), symbols=quoted(symbols), names=quoted(library.opens),
                           absent=library.absent, lacking=library.lacking,
                           needless="".join(f'"{name}", ' for name in library.needless))


def trampolines(lib, symbols):
    calls = (TRAMPOLINE.format(name=name, lib=lib, offset=8 * i, index=i) for i, name in enumerate(symbols))
    return ".text\n" + "".join(calls) + first_call(lib)


def archive(lib, symbols, out):
    sources = {f"{lib}.c": resolver(lib, symbols), f"{lib}_calls.s": trampolines(lib, symbols)}
    for name, text in sources.items():
        (out / name).write_text(text)
    objects = [f"{lib}.o", f"{lib}_calls.o"]
    (out / f"lib{lib}.a").unlink(missing_ok=True)
    subprocess.check_call(["gcc", "-O2", "-fPIC", "-c", *sources], cwd=out)
    subprocess.check_call(["ar", "rcs", f"lib{lib}.a", *objects], cwd=out)
    for name in [*sources, *objects]:
        (out / name).unlink()


def main(symbols_file, out_dir):
    out = pathlib.Path(out_dir)
    out.mkdir(parents=True, exist_ok=True)
    symbols = collections.defaultdict(list)
    for symbol in pathlib.Path(symbols_file).read_text().split():
        symbols[library_of(symbol)].append(symbol)
    for lib in LIBRARIES:
        archive(lib, symbols[lib], out)


if __name__ == "__main__":
    main(*sys.argv[1:])
