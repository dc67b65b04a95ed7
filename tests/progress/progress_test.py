#!/usr/bin/env python3
"""libderate_progress.so in programs that launch, over a driver that only counts what it is asked:
what is on its page is what the driver was asked, and no program notices.

    progress_test.py LIBRARY STUB_FOLDER CLIENT
"""
import fcntl
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

from launch_listener import KERNELS, Ear, Page, preloading

LIBRARY, STUB, CLIENT = (str(Path(each).resolve()) for each in sys.argv[1:4])
del sys.argv[1:4]

SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW


class Progress(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.ear = Ear(self.folder)
        self.addCleanup(self.ear.close)

    def run_with(self, command, **environment):
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False,
                              env={**preloading(LIBRARY, self.folder), "LD_LIBRARY_PATH": STUB,
                                   **environment})

    def pages(self):
        out = []
        for file in self.ear.files():
            out.append(Page(file))
            os.close(file)
        return out

    def launch(self, way, *count, **environment):
        """What the driver was asked (kernels, graphs, waits, copies), and the pages."""
        done = self.run_with([CLIENT, way, *count], **environment)
        self.assertEqual((done.returncode, done.stderr), (0, ""), way)
        return [int(word) for word in done.stdout.split()], self.pages()

    def one_gpu(self, way, *count):
        asked, pages = self.launch(way, *count)
        self.assertEqual(len(pages), 1, way)
        self.assertEqual(len(pages[0].gpus), 1, way)
        return asked, pages[0].gpus[0]

    def test_each_way_to_the_driver_is_counted(self):
        for way in ("dlsym", "get-proc", "old-get-proc", "config", "refused", "threads", "many"):
            with self.subTest(way):
                (kernels, *_), gpu = self.one_gpu(way)
                self.assertEqual((gpu.launches, gpu.uuid), (kernels, b"\xa0" * 16))
                self.assertEqual(sum(row[0] for row in gpu.streams.values()), kernels)

    def test_threads_that_come_and_go(self):
        (kernels, *_), gpu = self.one_gpu("crowd")
        self.assertEqual(gpu.launches, kernels)
        self.assertEqual(gpu.rows, 17)  # 16 have their own, and one is of all others

    def test_blocks_of_a_grid(self):
        _, gpu = self.one_gpu("dlsym", "10")
        self.assertEqual(list(gpu.kernels.values()), [[10, 240]])
        _, gpu = self.one_gpu("config", "10")
        self.assertEqual(list(gpu.kernels.values()), [[10, 50]])

    def test_a_kernel_has_the_same_id_in_each_run(self):
        runs = [set(self.one_gpu("get-proc")[1].kernels) for _ in range(3)]
        self.assertEqual(len(runs[0]), 2)
        self.assertEqual((runs[1], runs[2]), (runs[0], runs[0]))

    def test_what_has_no_room_is_in_the_last_row(self):
        _, gpu = self.one_gpu("many")
        self.assertGreater(gpu.kernels[0][0], 4000 - 10 * (KERNELS - 1) - 1)
        self.assertGreater(len(gpu.kernels), KERNELS // 2)

    def test_eighty_kernels_have_room(self):
        for seed in range(20):
            _, gpu = self.one_gpu("eighty", str(seed))
            self.assertEqual(sorted(row[0] for row in gpu.kernels.values()), [10] * 80, seed)

    def test_collectives_are_known_by_their_names(self):
        _, gpu = self.one_gpu("collectives")
        self.assertEqual((gpu.collectives, gpu.launches), (11, 1014))
        self.assertEqual(gpu.blocks, 1014 * 24)

    def test_a_graph_is_worth_its_nodes(self):
        (_, graphs, *_), gpu = self.one_gpu("graphs")
        self.assertEqual((gpu.launches, gpu.blocks), (graphs, 40 * graphs))

    def test_a_graph_is_worth_its_nodes_by_whatever_name_it_was_made(self):
        (_, graphs, *_), gpu = self.one_gpu("made-in-each-way")
        self.assertEqual((graphs, list(gpu.kernels.values())), (5, [[5, 200]]))

    def test_thousands_of_graphs_are_known_by_their_nodes(self):
        (_, graphs, *_), gpu = self.one_gpu("many-graphs")
        self.assertEqual(gpu.launches, 1000 + graphs)
        self.assertNotIn(0, gpu.kernels)
        nodes = sorted(blocks / launches for launches, blocks in gpu.kernels.values())
        self.assertEqual(nodes, sorted([24, 90, *range(10, 43)]))  # 24 blocks: the kernel's

    def test_what_is_captured_is_not_yet_done(self):
        (_, graphs, _, copies), gpu = self.one_gpu("captured")
        self.assertEqual((graphs, copies, gpu.copies), (1, 1, 0))
        self.assertEqual(sorted(gpu.kernels.values()), [[1, 7], [1002, 24002]])

    def test_a_kernel_on_many_devices_is_counted_on_each(self):
        _, [page] = self.launch("many-devices")
        counts = {gpu.uuid[0]: sorted(gpu.kernels.values()) for gpu in page.gpus}
        self.assertEqual(counts, {0xa0: [[1, 42], [1000, 24000]], 0xa3: [[1, 5]], 0xa1: [[1, 5]]})

    def test_each_kind_of_memory_work(self):
        _, gpu = self.one_gpu("memory")
        self.assertEqual(gpu.copies, 3)  # of the host's memory
        self.assertEqual(sorted(gpu.kernels.values()),
                         [[2, 1024], [3, 512 + 1024 + 512], [1000, 24000]])

    def test_copies_on_the_device_are_work(self):
        (_, _, _, copies), gpu = self.one_gpu("copies")
        self.assertEqual((gpu.launches, gpu.blocks, gpu.copies), (copies, 4096 * copies, 0))

    def test_waits_and_copies(self):
        (_, _, waits, copies), gpu = self.one_gpu("waits")
        self.assertEqual((gpu.waits, gpu.copies), (waits, copies))
        self.assertEqual((waits, copies), (4, 7))

    def test_each_gpu_has_its_counts(self):
        _, [page] = self.launch("two-gpus")
        self.assertEqual([(gpu.uuid, gpu.launches) for gpu in page.gpus],
                         [(b"\xa3" * 16, 1000), (b"\xa1" * 16, 1000)])

    def test_a_child_has_a_page_of_its_own(self):
        _, pages = self.launch("child")
        self.assertEqual([page.gpus[0].launches for page in pages], [2000, 7])
        self.assertNotEqual(pages[0].pid, pages[1].pid)

    def test_files_that_the_program_closed(self):
        asked, [page] = self.launch("closed")
        self.assertEqual(page.gpus[0].launches, asked[0])

    def test_a_page_cannot_be_cut(self):
        _, [page] = self.launch("dlsym")
        self.assertEqual(page.seals & SEALS, SEALS)

    def test_off_and_nobody_there(self):
        _, pages = self.launch("dlsym", DERATE_PROGRESS="off")
        self.assertEqual(pages, [])
        _, pages = self.launch("dlsym", DERATE_RUN_DIR="/nonexistent")
        self.assertEqual(pages, [])

    def test_later_it_makes_no_system_call_but_those_that_are_listed(self):
        # The queue is full at first, so the page is sent again after a second.
        self.ear.fill()
        program = subprocess.Popen(
            [CLIENT, "filtered"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**preloading(LIBRARY, self.folder), "LD_LIBRARY_PATH": STUB})
        self.addCleanup(program.kill)
        time.sleep(0.7)
        self.ear.forget()
        out, errors = program.communicate(timeout=60)
        if program.returncode == 77:
            self.skipTest("no filter can be set here")
        self.assertEqual((program.returncode, errors), (0, ""))
        [page] = self.pages()
        self.assertEqual(page.gpus[0].launches, int(out.split()[0]))

    def test_a_socket_that_anybody_may_have_put_there_is_told_nothing(self):
        for mode in (0o777, 0o770):
            os.chmod(self.folder, mode)
            _, pages = self.launch("dlsym")
            self.assertEqual(pages, [], oct(mode))

    def test_a_queue_that_is_full_holds_up_nobody(self):
        sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(sender.close)
        sender.setblocking(False)
        with self.assertRaises(BlockingIOError):
            while True:
                sender.sendto(b"x", str(self.folder / "launches.sock"))
        done = self.run_with([CLIENT, "dlsym"])
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_programs_without_cuda_notice_nothing(self):
        for command in (["true"], ["sh", "-c", "ls / | wc -l"],
                        [sys.executable, "-c", "import ssl"]):
            alone = subprocess.run(command, capture_output=True, text=True, check=False)
            with_it = self.run_with(command)
            self.assertEqual((with_it.returncode, with_it.stdout, with_it.stderr),
                             (alone.returncode, alone.stdout, alone.stderr))
        self.assertEqual(self.pages(), [])

    def built(self, name, source, *options, compiler="cc"):
        if shutil.which(compiler) is None:
            self.skipTest(f"no {compiler} here")
        (self.folder / f"{name}.c").write_text("#define _GNU_SOURCE\n" + source)
        subprocess.run([compiler, "-w", "-o", self.folder / name, self.folder / f"{name}.c",
                        *options], check=True)
        return str(self.folder / name)

    def test_the_next_function_is_that_of_who_asks(self):
        """Libraries that stand before malloc() or strcmp(), as allocators and sanitizers do."""
        before = self.built("before.so", """
            #include <dlfcn.h>
            #include <stddef.h>
            void* malloc(size_t size) {
              static void* (*next)(size_t);
              if (next == NULL) next = (void* (*)(size_t))dlsym(RTLD_NEXT, "malloc");
              return next(size);
            }
            int strcmp(const char* a, const char* b) {
              static int (*next)(const char*, const char*);
              if (next == NULL)
                next = (int (*)(const char*, const char*))dlsym(RTLD_NEXT, "strcmp");
              return next(a, b);
            }""", "-shared", "-fPIC", "-fno-builtin")
        for order in (f"{LIBRARY} {before}", f"{before} {LIBRARY}"):
            done = self.run_with([CLIENT, "dlsym"], LD_PRELOAD=order)
            self.assertEqual((done.returncode, done.stderr), (0, ""), order)
            self.assertEqual([page.gpus[0].launches for page in self.pages()], [1000])

    def alike(self, program, *arguments):
        """That it ends and prints as without the library; what it does then."""
        ends = []
        for preload in ("", LIBRARY):
            done = self.run_with([program, *arguments], LD_PRELOAD=preload)
            ends.append((done.returncode, done.stdout, done.stderr))
        self.assertEqual(ends[0], ends[1], program)
        self.assertEqual(ends[0][0], 0, ends)

    def test_programs_that_found_a_way_to_break(self):
        takes_address = """
            #include <dlfcn.h>
            #include <stdio.h>
            int main(void) {
              void* (*volatile find)(void*, const char*) = dlsym;
              return printf("%d\\n", find(RTLD_DEFAULT, "printf") != 0) != 2;
            }"""
        self.alike(self.built("no-pie", takes_address, "-fno-pie", "-no-pie"))
        self.alike(self.built("sanitized", takes_address, "-fsanitize=address", "-static-libasan",
                              compiler="gcc"))
        variable = self.built("variable.so", """
            #include <dlfcn.h>
            int (*cuLaunchKernel)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                                  unsigned, void*, void**, void**);
            int launch(void) {
              cuLaunchKernel = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuLaunchKernel");
              return cuLaunchKernel("k", 1, 1, 1, 1, 1, 1, 0, 0, 0, 0);
            }""", "-shared", "-fPIC")
        self.alike(self.built("uses-variable", """
            int launch(void);
            int main(void) { return launch(); }""", variable))
        self.alike(self.built("own-names", """
            #include <dlfcn.h>
            int puts(const char*);
            int socket(int x) { return puts("my socket"); }
            void close(const char* x) { puts("my close"); }
            int sendmsg(void) { return puts("my sendmsg"); }
            int main(void) {
              int (*launch)(void*, ...) = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuLaunchKernel");
              return launch("k", 1, 1, 1, 1, 1, 1, 0, (void*)0, (void*)0, (void*)0);
            }"""))

    # What is linked with the driver: calls it, and by an address that it has taken.
    LINKED = """
        int cuLaunchKernel(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                           unsigned, void*, void**, void**);
        static int (*volatile launch)(void*, unsigned, unsigned, unsigned, unsigned, unsigned,
                                      unsigned, unsigned, void*, void**, void**);
        static int run(int times) {
          int wrong = 0;
          launch = cuLaunchKernel;
          for (int i = 0; i < times; ++i)
            wrong |= (i % 2 ? launch : cuLaunchKernel)("k", 1, 1, 1, 1, 1, 1, 0, 0, 0, 0);
          return wrong;
        }
        """
    WITH_DRIVER = ("-L", STUB, "-Wl,-rpath," + STUB, "-l:libcuda.so.1")

    def test_a_driver_that_lacks_functions_leaves_no_error(self):
        """dlsym(3): a caller checks dlerror() after it."""
        self.built("libcuda.so.1", "int cuCtxGetDevice(int* d) { return *d = 0; }"
                   "int cuLaunchKernel(void) { return 0; }", "-shared", "-fPIC")
        program = self.built("old", """
            #include <dlfcn.h>
            int main(void) {
              void* driver = dlopen("libcuda.so.1", RTLD_NOW);
              return !dlsym(driver, "cuLaunchKernel") || dlerror() != 0 ||
                     dlsym(driver, "cuGraphLaunch") || !dlerror();
            }""")
        done = self.run_with([program], LD_LIBRARY_PATH=str(self.folder))
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_modules_that_are_linked_with_the_driver(self):
        """As Triton makes them, up to 3.3; the loader's protection of its addresses stays."""
        loader = self.built("loader", """
            #include <dlfcn.h>
            #include <stdio.h>
            #include <string.h>
            static int protection(char* all) {
              FILE* maps = fopen("/proc/self/maps", "r");
              char line[512], may[8];
              for (*all = 0; fgets(line, sizeof line, maps);)
                if (strstr(line, "module")) sscanf(line, "%*s %7s", may), strcat(all, may);
              return fclose(maps);
            }
            int main(int n, char** a) {
              static char before[4096], after[4096];
              void* module = dlopen(a[1], RTLD_NOW);
              if (!module) return fputs(dlerror(), stderr), 2;
              protection(before);
              int (*run)(void) = dlsym(module, "PyInit_module");
              protection(after);
              return strcmp(before, after) || dlsym(module, "PyInit_module") != run || run();
            }""")
        for kind in ("-Wl,-z,now,-z,relro", "-Wl,-z,lazy", "-fno-plt"):
            module = self.built("module.so", self.LINKED + "int PyInit_module(void) "
                                "{ return run(1000); }", "-shared", "-fPIC", kind,
                                *self.WITH_DRIVER)
            done = self.run_with([loader, module])
            self.assertEqual((done.returncode, done.stderr), (0, ""), kind)
            self.assertEqual([page.gpus[0].launches for page in self.pages()], [1000], kind)

    def test_programs_that_are_linked_with_the_driver(self):
        for kind in (("-Wl,-z,now",), ("-Wl,-z,lazy",), ("-fno-plt",),
                     ("-fno-pie", "-no-pie", "-Wl,-z,lazy"), ("-fno-pie", "-no-pie")):
            program = self.built("linked", self.LINKED + "int main(void) { return run(1000); }",
                                 *kind, *self.WITH_DRIVER)
            done = self.run_with([program])
            self.assertEqual((done.returncode, done.stderr), (0, ""), kind)
            self.assertEqual([page.gpus[0].launches for page in self.pages()], [1000], kind)
        idle = self.built("idle", self.LINKED + "int main(void) { return run(0); }",
                          *self.WITH_DRIVER)
        self.alike(idle)
        self.assertEqual(self.pages(), [])

    def test_a_library_that_is_linked_with_the_driver_in_a_program_with_its_address(self):
        """Its calls go by way of the program's, where that is not relocatable."""
        library = self.built("linked.so", self.LINKED + "int part(void) { return run(1000); }",
                             "-shared", "-fPIC", *self.WITH_DRIVER)
        for kind in ("-Wl,-z,now", "-Wl,-z,lazy"):
            program = self.built("both", self.LINKED + """
                int part(void);
                int main(void) { return run(1000) | part(); }""", "-fno-pie", "-no-pie", kind,
                                 library, *self.WITH_DRIVER)
            done = self.run_with([program])
            self.assertEqual((done.returncode, done.stderr), (0, ""), kind)
            self.assertEqual([page.gpus[0].launches for page in self.pages()], [2000], kind)

    def test_loading_and_unloading_while_it_begins(self):
        small = self.built("small.so", "int small(void) { return 1; }", "-shared", "-fPIC")
        racing = self.built("racing", """
            #include <dlfcn.h>
            #include <pthread.h>
            #include <unistd.h>
            static void* load(void* path) {
              for (;;) { void* h = dlopen(path, RTLD_NOW); if (h) dlclose(h); }
            }
            int main(int n, char** a) {
              pthread_t thread;
              pthread_create(&thread, 0, load, a[1]);
              usleep(3000);
              _exit(dlsym(RTLD_DEFAULT, "printf") == 0);
            }""", "-pthread")
        for _ in range(40):
            self.assertEqual(self.run_with([racing, small]).returncode, 0)

    def test_a_limit_of_files_lengths(self):
        limited = self.built("limited", """
            #include <sys/resource.h>
            #include <unistd.h>
            int main(int n, char** a) {
              struct rlimit one = {1024, 1024};
              setrlimit(RLIMIT_FSIZE, &one);
              return execv(a[1], a + 1);
            }""")
        self.alike(limited, CLIENT, "dlsym")

    # A filter of system calls, after which a program runs: one of `number` with `bit` in its
    # argument `which`, or without it, is refused.
    REFUSES = """
        #include <errno.h>
        #include <linux/filter.h>
        #include <linux/seccomp.h>
        #include <stddef.h>
        #include <sys/prctl.h>
        #include <sys/syscall.h>
        #include <unistd.h>
        static int refuse(int number, int which, unsigned bits, unsigned value, unsigned action) {
          struct sock_filter lines[] = {
              BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
              BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 4),
              BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args) + 8 * which),
              BPF_STMT(BPF_ALU | BPF_AND | BPF_K, bits),
              BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1),
              BPF_STMT(BPF_RET | BPF_K, action),
              BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
          struct sock_fprog all = {sizeof lines / sizeof *lines, lines};
          return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
                 prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &all);
        }
        """

    def test_a_kernel_that_cannot_wipe_pages_in_children(self):
        """gVisor and old ones. What the library remembers of it costs no system call a launch."""
        program = self.built("cannot-wipe", self.REFUSES + """
            #include <dlfcn.h>
            #include <sys/mman.h>
            #include <sys/wait.h>
            int main(void) {
              const unsigned refused = SECCOMP_RET_ERRNO | EINVAL;
              if (refuse(SYS_madvise, 2, ~0u, MADV_WIPEONFORK, refused)) return 2;
              int (*launch)(void*, ...) = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuLaunchKernel");
              launch("k", 1, 1, 1, 1, 1, 1, 0, (void*)0, (void*)0, (void*)0);
              if (refuse(SYS_mmap, 0, 0, 0, SECCOMP_RET_KILL_PROCESS)) return 2;
              const pid_t child = fork();
              for (int i = 0; i < 3; ++i)
                launch("k", 1, 1, 1, 1, 1, 1, 0, (void*)0, (void*)0, (void*)0);
              if (child == 0) _exit(0);
              int ended = 1;
              waitpid(child, &ended, 0);
              _exit(ended != 0);
            }""")
        done = self.run_with([program])
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(self.pages(), [])

    def test_kernels_that_want_memory_files_not_executable_or_do_not_know_it(self):
        for value, error in (("0", "EACCES"), ("8", "EINVAL")):
            program = self.built(f"memfd-{value}", self.REFUSES + f"""
                int main(int n, char** a) {{
                  return refuse(SYS_memfd_create, 1, 8, {value}, SECCOMP_RET_ERRNO | {error})
                             ? 2 : execv(a[1], a + 1);
                }}""")
            done = self.run_with([program, CLIENT, "dlsym"])
            self.assertEqual((done.returncode, done.stderr), (0, ""), error)
            self.assertEqual([page.gpus[0].launches for page in self.pages()], [1000], error)

    def test_a_launch_is_no_place_to_be_cancelled_at(self):
        self.alike(self.built("cancelled", """
            #include <dlfcn.h>
            #include <pthread.h>
            #include <stdio.h>
            static void* run(void* x) {
              int (*launch)(void*, ...) = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuLaunchKernel");
              pthread_cancel(pthread_self());
              launch("k", 1, 1, 1, 1, 1, 1, 0, (void*)0, (void*)0, (void*)0);
              return "launched";
            }
            int main(void) {
              pthread_t thread;
              void* end;
              pthread_create(&thread, 0, run, 0);
              pthread_join(thread, &end);
              return puts(end == PTHREAD_CANCELED ? "cancelled" : end) < 0;
            }""", "-pthread"))

    def test_it_stands_on_no_library(self):
        """So that a program with an older C library, or another one, can load it."""
        listed = subprocess.run(["readelf", "-dV", LIBRARY], capture_output=True, text=True,
                                check=True).stdout
        self.assertNotIn("NEEDED", listed)
        self.assertNotIn("GLIBC_", listed)

    def test_musl(self):
        if shutil.which("musl-gcc") is None:
            self.skipTest("no musl-gcc here")
        source, program = self.folder / "small.c", self.folder / "small"
        source.write_text("""
            #define _GNU_SOURCE
            #include <dlfcn.h>
            #include <stdio.h>
            int main(void) { return printf("%d\\n", dlsym(RTLD_DEFAULT, "printf") != 0) != 2; }""")
        subprocess.run(["musl-gcc", "-o", program, source], check=True)
        done = self.run_with([str(program)])
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "1\n", ""))


if __name__ == "__main__":
    unittest.main(verbosity=1)
