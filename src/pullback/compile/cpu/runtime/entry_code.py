"""The text of the native entry: how Python objects become pointers in a program's table, and results become objects."""

from __future__ import annotations

from collections.abc import Mapping

from .entry_parts import PARTS
from .object_code import ACCESSORS, FIELDS, fill_in

#: The words in front of a function's memory; the last ones differ between the functions of one program.
HEADER = (
    "inputs", "outputs", "size", "rest", "pieces", "functions", "records", "status", "taken", "order", "ordered",
    "written", "tensors", "results", "kept", "pattern",
)  # fmt: skip
_POINTERS = frozenset(("rest", "functions", "records", "taken", "order", "pattern"))
#: The words about one array.
RECORD = ("rank", "dtype", "flags", "dims", "place", "nbytes", "spec")


def render_entry(name: str, slots: Mapping[str, int]) -> str:
    """The module of the entry; `slots` are the offsets of a tensor's slots."""
    header = "\n".join(_load_word(word, 8 * i) for i, word in enumerate(HEADER))
    numbers = FIELDS | {"VALUE": slots["value"], "SPEC": slots["spec"], "NODE": slots["node"]}
    numbers |= {"GUARD": slots["_status"], "WORDS": len(RECORD)}
    numbers |= {f"OF.{word.upper()}": i for i, word in enumerate(RECORD)}
    entry = _ENTRY.replace("@ENTRY", f"@{name}").replace("  HEADER", header)
    return fill_in(_DECLARATIONS + ACCESSORS + PARTS + entry, numbers)


def _load_word(name: str, offset: int) -> str:
    kind = "ptr" if name in _POINTERS else "i64"
    return f"  %{name}.p = getelementptr i8, ptr %header, i64 {offset}\n  %{name} = load {kind}, ptr %{name}.p"


_DECLARATIONS = """
@pb_array_type = external global i8
@pb_tensor_type = external global i8
@pb_empty_text = external global i8
@pb_true = external global i8
@pb_false = external global i8
@pb_none = external global i8
@pb_ellipsis = external global i8
declare void @pb_incref(ptr)
declare void @pb_decref(ptr)
declare ptr @pb_give_lock()
declare void @pb_take_lock(ptr)
declare ptr @pb_new_list(i64)
declare ptr @pb_new_object(ptr, i64)
declare ptr @pb_new_bytes(ptr, i64)
declare ptr @pb_new_array(ptr, ptr, i32, ptr, ptr, ptr, i32, ptr)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
"""

_ENTRY = """
define ptr @ENTRY(ptr %self, ptr %args, i64 %count) {
entry:
  %header = call ptr @field(ptr %self, i64 $DATA)
  HEADER
  %made = icmp ne i64 %tensors, 0
  %given = select i1 %made, i64 0, i64 %outputs
  %wanted = add i64 %inputs, %given
  %enough = icmp eq i64 %count, %wanted
  br i1 %enough, label %start, label %mismatch
start:
  %table = alloca ptr, i64 %size
  %table.bytes = mul i64 %size, 8
  call void @llvm.memcpy.p0.p0.i64(ptr %table, ptr %rest, i64 %table.bytes, i1 false)
  %state = alloca i32
  store i32 0, ptr %state
  %state.p = getelementptr ptr, ptr %table, i64 %status
  store ptr %state, ptr %state.p
  %marks = alloca i8, i64 %inputs
  %arrays = alloca ptr, i64 %inputs
  %records.out = getelementptr [$WORDS x i64], ptr %records, i64 %inputs
  %takes = icmp sgt i64 %tensors, 1
  %records.them = icmp eq i64 %tensors, 4
  br label %input
input:
  %i = phi i64 [ 0, %start ], [ %i.next, %check ]
  %seen = phi i1 [ false, %start ], [ %seen.next, %check ]
  %i.done = icmp eq i64 %i, %inputs
  br i1 %i.done, label %inputs.done, label %look
look:
  %arg.p = getelementptr ptr, ptr %args, i64 %i
  %arg = load ptr, ptr %arg.p
  %record = getelementptr [$WORDS x i64], ptr %records, i64 %i
  %type = call ptr @field(ptr %arg, i64 $TYPE)
  %is.tensor = icmp eq ptr %type, @pb_tensor_type
  %unwraps = and i1 %is.tensor, %takes
  br i1 %unwraps, label %unwrap, label %check
unwrap:
  %value = call ptr @field(ptr %arg, i64 $VALUE)
  %node = call ptr @field(ptr %arg, i64 $NODE)
  %guard = call ptr @field(ptr %arg, i64 $GUARD)
  %unset = icmp eq ptr %value, null
  %untracked = icmp eq ptr %node, @pb_none
  %mark.tensor = select i1 %untracked, i8 1, i8 2
  %unguarded.1 = icmp eq ptr %guard, null
  %unguarded.2 = icmp eq ptr %guard, @pb_empty_text
  %unguarded = or i1 %unguarded.1, %unguarded.2
  %guarded = xor i1 %unguarded, true
  ; what is saved of a guarded tensor must be protected
  %protected = and i1 %guarded, %records.them
  %bad = or i1 %unset, %protected
  br i1 %bad, label %mismatch, label %check
check:
  %array = phi ptr [ %arg, %look ], [ %value, %unwrap ]
  %mark = phi i8 [ 0, %look ], [ %mark.tensor, %unwrap ]
  %seen.next = phi i1 [ %seen, %look ], [ true, %unwrap ]
  %mark.p = getelementptr i8, ptr %marks, i64 %i
  store i8 %mark, ptr %mark.p
  %array.p = getelementptr ptr, ptr %arrays, i64 %i
  store ptr %array, ptr %array.p
  %i.next = add i64 %i, 1
  %fits = call i1 @fits(ptr %record, ptr %array)
  br i1 %fits, label %input, label %mismatch
inputs.done:
  %watches.1 = icmp eq i64 %tensors, 2
  %watches = or i1 %watches.1, %records.them
  br i1 %watches, label %tracking, label %placing
tracking:
  %agrees = call i1 @agree(ptr %marks, ptr %pattern, i64 %inputs)
  br i1 %agrees, label %placing, label %tracked
tracked:
  %found.marks = call ptr @pb_new_bytes(ptr %marks, i64 %inputs)
  ret ptr %found.marks
placing:
  %p = phi i64 [ 0, %inputs.done ], [ 0, %tracking ], [ %p.next, %placed ]
  %p.done = icmp eq i64 %p, %inputs
  br i1 %p.done, label %result, label %placed
placed:
  %p.array.p = getelementptr ptr, ptr %arrays, i64 %p
  %p.array = load ptr, ptr %p.array.p
  %p.record = getelementptr [$WORDS x i64], ptr %records, i64 %p
  call void @place(ptr %p.record, ptr %p.array, ptr %table)
  %p.next = add i64 %p, 1
  br label %placing
result:
  %g = phi i64 [ 0, %placing ], [ %g.next, %result.fits ]
  %g.done = icmp eq i64 %g, %given
  br i1 %g.done, label %results.done, label %result.look
result.look:
  %g.place = add i64 %inputs, %g
  %g.arg.p = getelementptr ptr, ptr %args, i64 %g.place
  %g.arg = load ptr, ptr %g.arg.p
  %g.record = getelementptr [$WORDS x i64], ptr %records.out, i64 %g
  %g.next = add i64 %g, 1
  %g.fits = call i1 @fits(ptr %g.record, ptr %g.arg)
  br i1 %g.fits, label %result.fits, label %mismatch
result.fits:
  call void @place(ptr %g.record, ptr %g.arg, ptr %table)
  br label %result
results.done:
  %separate = call i1 @apart(ptr %records, ptr %table, ptr %order, i64 %written, i64 %ordered)
  br i1 %separate, label %separated, label %mismatch
separated:
  %checks.only = icmp slt i64 %pieces, 0
  br i1 %checks.only, label %yes, label %runs
runs:
  br i1 %made, label %making, label %running
making:
  %length = add i64 %outputs, %kept
  %new = call ptr @pb_new_list(i64 %length)
  %new.failed = icmp eq ptr %new, null
  br i1 %new.failed, label %failed, label %listed
listed:
  %items = call ptr @field(ptr %new, i64 $ITEMS)
  br label %one
one:
  %o = phi i64 [ 0, %listed ], [ %o.next, %put ]
  %o.done = icmp eq i64 %o, %outputs
  br i1 %o.done, label %keep, label %one.make
one.make:
  %o.record = getelementptr [$WORDS x i64], ptr %records.out, i64 %o
  %o.array = call ptr @make(ptr %o.record, ptr %table)
  %o.failed = icmp eq ptr %o.array, null
  br i1 %o.failed, label %failed, label %put
put:
  ; what the backward pass saves comes last: the inputs, then what else the program returns
  %o.saved = icmp uge i64 %o, %results
  %o.later = add i64 %o, %kept
  %o.place = select i1 %o.saved, i64 %o.later, i64 %o
  %o.p = getelementptr ptr, ptr %items, i64 %o.place
  store ptr %o.array, ptr %o.p
  %o.next = add i64 %o, 1
  br label %one
keep:
  %k = phi i64 [ 0, %one ], [ %k.next, %keep.one ]
  %k.done = icmp eq i64 %k, %kept
  br i1 %k.done, label %running, label %keep.one
keep.one:
  %k.array.p = getelementptr ptr, ptr %arrays, i64 %k
  %k.array = load ptr, ptr %k.array.p
  call void @pb_incref(ptr %k.array)
  %k.place = add i64 %results, %k
  %k.p = getelementptr ptr, ptr %items, i64 %k.place
  store ptr %k.array, ptr %k.p
  %k.next = add i64 %k, 1
  br label %keep
running:
  %list = phi ptr [ null, %runs ], [ %new, %keep ]
  %list.items = phi ptr [ null, %runs ], [ %items, %keep ]
  %short = icmp eq ptr %taken, null
  br i1 %short, label %piece, label %asking
asking:
  ; read and written while holding the GIL
  %other = load i32, ptr %taken
  %free = icmp eq i32 %other, 0
  br i1 %free, label %giving, label %taken.already
giving:
  store i32 1, ptr %taken
  call void @hold(ptr %arrays, i64 %inputs)
  %thread = call ptr @pb_give_lock()
  br label %piece
piece:
  %n = phi i64 [ 0, %running ], [ 0, %giving ], [ %n.next, %piece.run ]
  %lock = phi ptr [ null, %running ], [ %thread, %giving ], [ %lock, %piece.run ]
  %n.done = icmp eq i64 %n, %pieces
  br i1 %n.done, label %pieces.done, label %piece.run
piece.run:
  %function.p = getelementptr ptr, ptr %functions, i64 %n
  %function = load ptr, ptr %function.p
  call void %function(ptr %table)
  %n.next = add i64 %n, 1
  br label %piece
pieces.done:
  br i1 %short, label %after, label %taking
taking:
  call void @pb_take_lock(ptr %lock)
  store i32 0, ptr %taken
  call void @release(ptr %arrays, i64 %inputs)
  br label %after
after:
  %state.after = load i32, ptr %state
  %good = icmp eq i32 %state.after, 0
  br i1 %good, label %finishing, label %outside
finishing:
  br i1 %made, label %wrapping, label %yes
wrapping:
  %wrapped = select i1 %seen, i64 %results, i64 0
  %all.wrapped = call i1 @wrap(ptr %records.out, ptr %list.items, i64 %wrapped)
  br i1 %all.wrapped, label %finished, label %failed
finished:
  ret ptr %list
failed:
  %lost = phi ptr [ null, %making ], [ %new, %one.make ], [ %list, %wrapping ]
  call void @pb_decref(ptr %lost)
  ret ptr null
outside:
  call void @pb_decref(ptr %list)
  call void @pb_incref(ptr @pb_none)
  ret ptr @pb_none
taken.already:
  call void @pb_decref(ptr %list)
  call void @pb_incref(ptr @pb_ellipsis)
  ret ptr @pb_ellipsis
mismatch:
  call void @pb_incref(ptr @pb_false)
  ret ptr @pb_false
yes:
  call void @pb_incref(ptr @pb_true)
  ret ptr @pb_true
}
"""
