"""The thread pool as LLVM text: a caller posts a job of blocks, workers and the caller run them, the caller waits.

One word encodes the job: its number (32 bits), how many threads take part (16) and how many blocks it has (16). Each
thread has a ticket: the job (32 bits), the first unclaimed block of its share (16) and the share's end (16). It claims
from the front of its own share, so that in consecutive kernels it works on the same part of the arrays, which its
caches hold; when its share is empty it steals from the end of others'. A claim is one compare-and-exchange of the
ticket, so a worker that wakes up late claims nothing of a job it does not know. Only one caller has the workers;
another caller meanwhile runs its blocks alone.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence

#: Kernels have no more blocks than this, so more threads would be idle.
MAX_BLOCKS = 32

#: How often a waiting thread spins (some tens of microseconds in all), how often it then yields its core (some
#: hundreds), before it sleeps: waking up takes longer than most gaps between kernels.
SPINS, YIELDS = 1000, 500

_STATE = """
@pb_job = global i64 0, align 64
@pb_tickets = global [TICKETS x i64] zeroinitializer, align 64
@pb_function = global ptr null, align 64
@pb_arguments = global ptr null
@pb_done = global i64 0, align 64
@pb_owner = global i32 0, align 64
@pb_workers = global i32 0
@pb_stop = global i32 0
@pb_sleepers = global i32 0, align 64
@pb_waiting = global i32 0
@pb_never = constant i32 0
@pb_mutex = global [128 x i8] zeroinitializer, align 64
@pb_work = global [128 x i8] zeroinitializer, align 64
@pb_back = global [128 x i8] zeroinitializer, align 64
@pb_blas_mutex = global [128 x i8] zeroinitializer, align 64
@pb_blas_say = global ptr null
@pb_blas_set = global ptr null
@pb_blas_users = global i32 0
@pb_blas_before = global i32 0
declare i32 @pb_lock(ptr)
declare i32 @pb_unlock(ptr)
declare i32 @pb_wait(ptr, ptr)
declare i32 @pb_wake(ptr)
declare i32 @pb_yield()
"""

# Caller: post the job, wake sleeping workers, take blocks too, then wait until every block is done.
_PARALLEL = """
define void @pb_parallel(ptr %function, ptr %arguments, i64 %blocks) nounwind {
entry:
  %workers = load atomic i32, ptr @pb_workers monotonic, align 4
  %some = icmp ne i32 %workers, 0
  br i1 %some, label %ask, label %alone
ask:
  %got = cmpxchg ptr @pb_owner, i32 0, i32 1 acquire monotonic
  %mine = extractvalue { i32, i1 } %got, 1
  br i1 %mine, label %post, label %alone
alone:
  %b = phi i64 [ 0, %entry ], [ 0, %ask ], [ %b.next, %alone ]
  call void %function(ptr %arguments, i64 %b, i64 0)
  %b.next = add i64 %b, 1
  %more = icmp ult i64 %b.next, %blocks
  br i1 %more, label %alone, label %end
post:
  store ptr %function, ptr @pb_function
  store ptr %arguments, ptr @pb_arguments
  store i64 0, ptr @pb_done
  %old = load atomic i64, ptr @pb_job monotonic, align 8
  %before = lshr i64 %old, 32
  %number = add i64 %before, 1
  %high = shl i64 %number, 32
  %all.workers = zext i32 %workers to i64
  %everybody = add i64 %all.workers, 1
  %crowd = icmp ult i64 %everybody, %blocks
  %parts = select i1 %crowd, i64 %everybody, i64 %blocks
  br label %share
share:
  %p = phi i64 [ 0, %post ], [ %p.next, %share ]
  %p.next = add i64 %p, 1
  %lo.a = mul i64 %p, %blocks
  %lo = udiv i64 %lo.a, %parts
  %hi.a = mul i64 %p.next, %blocks
  %hi = udiv i64 %hi.a, %parts
  %lo.up = shl i64 %lo, 16
  %range = or i64 %lo.up, %hi
  %ticket = or i64 %high, %range
  %line = mul i64 %p, 8
  %place = getelementptr i64, ptr @pb_tickets, i64 %line
  store atomic i64 %ticket, ptr %place release, align 8
  %others = icmp ult i64 %p.next, %parts
  br i1 %others, label %share, label %publish
publish:
  %middle = shl i64 %parts, 16
  %both = or i64 %middle, %blocks
  %job = or i64 %high, %both
  store atomic i64 %job, ptr @pb_job seq_cst, align 8
  %asleep = load atomic i32, ptr @pb_sleepers seq_cst, align 4
  %any = icmp ne i32 %asleep, 0
  br i1 %any, label %wake, label %work
wake:
  %l0 = call i32 @pb_lock(ptr @pb_mutex)
  %w0 = call i32 @pb_wake(ptr @pb_work)
  %u0 = call i32 @pb_unlock(ptr @pb_mutex)
  br label %work
work:
  call void @pb_take(i64 %job, i64 0)
  call void @pb_await(ptr @pb_done, i64 %blocks, i1 true, ptr @pb_never, ptr @pb_waiting, ptr @pb_back)
  store atomic i32 0, ptr @pb_owner release, align 4
  br label %end
end:
  ret void
}
"""

# Claim a block of a thread's share, from the front or from the end; -1 if nothing of this job is left there.
_CLAIM = """
define internal i64 @pb_claim(i64 %number, i64 %whose, i1 %front) nounwind {
entry:
  %line = mul i64 %whose, 8
  %place = getelementptr i64, ptr @pb_tickets, i64 %line
  br label %look
look:
  %ticket = load atomic i64, ptr %place acquire, align 8
  %current = lshr i64 %ticket, 32
  %same = icmp eq i64 %current, %number
  %low = lshr i64 %ticket, 16
  %next = and i64 %low, 65535
  %end = and i64 %ticket, 65535
  %some = icmp ult i64 %next, %end
  %there = and i1 %same, %some
  br i1 %there, label %try, label %none
try:
  %without.first = add i64 %ticket, 65536
  %without.last = sub i64 %ticket, 1
  %changed = select i1 %front, i64 %without.first, i64 %without.last
  %got = cmpxchg ptr %place, i64 %ticket, i64 %changed seq_cst seq_cst
  %mine = extractvalue { i64, i1 } %got, 1
  br i1 %mine, label %take, label %look
take:
  %last = sub i64 %end, 1
  %block = select i1 %front, i64 %next, i64 %last
  ret i64 %block
none:
  ret i64 -1
}
"""

# Run blocks of a job until there are none left; the thread that finishes the last one wakes a sleeping caller.
_TAKE = """
define internal void @pb_take(i64 %job, i64 %worker) nounwind {
entry:
  %number = lshr i64 %job, 32
  %middle = lshr i64 %job, 16
  %parts = and i64 %middle, 65535
  %blocks = and i64 %job, 65535
  %in = icmp ult i64 %worker, %parts
  br i1 %in, label %look, label %end
look:
  %k = phi i64 [ 0, %entry ], [ %k, %run ], [ %k.next, %move ]
  %front = icmp eq i64 %k, 0
  %sum = add i64 %worker, %k
  %whose = urem i64 %sum, %parts
  %block = call i64 @pb_claim(i64 %number, i64 %whose, i1 %front)
  %none = icmp slt i64 %block, 0
  br i1 %none, label %move, label %found
move:
  %k.next = add i64 %k, 1
  %more = icmp ult i64 %k.next, %parts
  br i1 %more, label %look, label %end
found:
  %function = load ptr, ptr @pb_function
  %arguments = load ptr, ptr @pb_arguments
  call void %function(ptr %arguments, i64 %block, i64 %worker)
  %before = atomicrmw add ptr @pb_done, i64 1 seq_cst
  %after = add i64 %before, 1
  %all = icmp eq i64 %after, %blocks
  br i1 %all, label %finished, label %run
run:
  br label %look
finished:
  %waiting = load atomic i32, ptr @pb_waiting seq_cst, align 4
  %wanted = icmp ne i32 %waiting, 0
  br i1 %wanted, label %wake, label %end
wake:
  %l = call i32 @pb_lock(ptr @pb_mutex)
  %w = call i32 @pb_wake(ptr @pb_back)
  %u = call i32 @pb_unlock(ptr @pb_mutex)
  br label %end
end:
  ret void
}
"""

# Worker: take blocks of every new job, until stopped.
_WORKER = """
define ptr @pb_worker(ptr %number) nounwind {
entry:
  %worker = ptrtoint ptr %number to i64
  br label %serve
serve:
  %job = load atomic i64, ptr @pb_job acquire, align 8
  call void @pb_take(i64 %job, i64 %worker)
  call void @pb_await(ptr @pb_job, i64 %job, i1 false, ptr @pb_stop, ptr @pb_sleepers, ptr @pb_work)
  %stop = load atomic i32, ptr @pb_stop acquire, align 4
  %stopping = icmp ne i32 %stop, 0
  br i1 %stopping, label %end, label %serve
end:
  ret ptr null
}
"""

# Wait until a word is equal to a value, or is not, or a flag is set: spin for a while, then sleep. Who wakes sleepers
# looks at their number after changing the word, and they look at the word after changing their number: none is missed.
_AWAIT = """
define internal void @pb_await(ptr %word, i64 %value, i1 %equal, ptr %flag, ptr %sleepers, ptr %condition) nounwind {
entry:
  br label %look
look:
  %n = phi i32 [ 0, %entry ], [ %n.next, %again ]
  %soon = call i1 @pb_is_over(ptr %word, i64 %value, i1 %equal, ptr %flag)
  br i1 %soon, label %end, label %again
again:
  call void @pb_linger(i32 %n)
  %n.next = add i32 %n, 1
  %enough = icmp ugt i32 %n.next, TURNS
  br i1 %enough, label %sleep, label %look
sleep:
  %l = call i32 @pb_lock(ptr @pb_mutex)
  %s0 = atomicrmw add ptr %sleepers, i32 1 seq_cst
  br label %check
check:
  %now = call i1 @pb_is_over(ptr %word, i64 %value, i1 %equal, ptr %flag)
  br i1 %now, label %up, label %down
down:
  %w = call i32 @pb_wait(ptr %condition, ptr @pb_mutex)
  br label %check
up:
  %s1 = atomicrmw sub ptr %sleepers, i32 1 seq_cst
  %u = call i32 @pb_unlock(ptr @pb_mutex)
  br label %end
end:
  ret void
}
define internal i1 @pb_is_over(ptr %word, i64 %value, i1 %equal, ptr %flag) alwaysinline nounwind {
entry:
  %now = load atomic i64, ptr %word seq_cst, align 8
  %same = icmp eq i64 %now, %value
  %wanted = icmp eq i1 %same, %equal
  %set = load atomic i32, ptr %flag seq_cst, align 4
  %stopped = icmp ne i32 %set, 0
  %over = or i1 %wanted, %stopped
  ret i1 %over
}
"""

# Batches of products: while any runs, the BLAS has one thread; the last to finish restores its setting.
_PRODUCTS = """
define void @pb_parallel_products(ptr %function, ptr %arguments, i64 %blocks) nounwind {
entry:
  call void @pb_blas_alone(i32 1)
  call void @pb_parallel(ptr %function, ptr %arguments, i64 %blocks)
  call void @pb_blas_alone(i32 -1)
  ret void
}
define internal void @pb_blas_alone(i32 %more) nounwind {
entry:
  %l = call i32 @pb_lock(ptr @pb_blas_mutex)
  %set = load ptr, ptr @pb_blas_set
  %users = load i32, ptr @pb_blas_users
  %now = add i32 %users, %more
  store i32 %now, ptr @pb_blas_users
  %both = add i32 %now, %users
  %edge = icmp eq i32 %both, 1
  br i1 %edge, label %change, label %end
change:
  %coming = icmp eq i32 %now, 1
  br i1 %coming, label %come, label %go
come:
  %say = load ptr, ptr @pb_blas_say
  %before = call i32 %say()
  store i32 %before, ptr @pb_blas_before
  call void %set(i32 1)
  br label %end
go:
  %old = load i32, ptr @pb_blas_before
  call void %set(i32 %old)
  br label %end
end:
  %u = call i32 @pb_unlock(ptr @pb_blas_mutex)
  ret void
}
"""

_LINGER = """
define internal void @pb_linger(i32 %n) nounwind {
entry:
  %soon = icmp ult i32 %n, SPINS
  br i1 %soon, label %pause, label %yield
pause:
HINT
  ret void
yield:
  %y = call i32 @pb_yield()
  ret void
}
"""

# Without threads of the system the caller runs every block, in order: the same bits.
_SERIAL = """
define void @NAME(ptr %function, ptr %arguments, i64 %blocks) nounwind {
entry:
  br label %next
next:
  %b = phi i64 [ 0, %entry ], [ %b.next, %next ]
  call void %function(ptr %arguments, i64 %b, i64 0)
  %b.next = add i64 %b, 1
  %more = icmp ult i64 %b.next, %blocks
  br i1 %more, label %next, label %end
end:
  ret void
}
"""

_HINTS = {
    "x86_64": ("declare void @llvm.x86.sse2.pause()", "  call void @llvm.x86.sse2.pause()"),
    "aarch64": ("declare void @llvm.aarch64.hint(i32 immarg)", "  call void @llvm.aarch64.hint(i32 1)"),
}


def render_pool() -> str:
    """The module: `pb_parallel` and `pb_parallel_products` for programs, `pb_worker` for threads, and their state."""
    machine = {"AMD64": "x86_64", "arm64": "aarch64"}.get(platform.machine(), platform.machine())
    declared, hint = _HINTS.get(machine, ("", "  fence seq_cst"))
    functions = (_PARALLEL + _CLAIM + _TAKE + _WORKER + _AWAIT + _PRODUCTS + _LINGER).replace("HINT", hint)
    functions = functions.replace("TURNS", str(SPINS + YIELDS)).replace("SPINS", str(SPINS))
    state = _STATE.replace("TICKETS", str(8 * MAX_BLOCKS))
    return f"{state}\n{declared}\n{functions}"


def render_serial_pool(names: Sequence[str]) -> str:
    """The functions for programs where the system has no threads for them; nothing of the system is called."""
    return "".join(_SERIAL.replace("NAME", name) for name in names)
