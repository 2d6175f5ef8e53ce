"""The text of the native walk over rows: checks the tensors, then runs the pieces of a row program on each row's
chunks.

Its memory is words of eight bytes: a header, a record for each row (the spec of its tensor, the number of its elements,
the pointers of its arrays), and a record for each phase. A piece takes a table of pointers, of which the first are
those of the row's arrays; the walk moves them from chunk to chunk. The rest of a row that is no whole chunk is copied
to scratch memory and back. The chunks of long tables are divided into blocks, each with a table and scratch memory of
its own, which the thread pool runs in parallel.
"""

from __future__ import annotations

from collections.abc import Mapping

from .object_code import ACCESSORS, FIELDS, fill_in
from .row_checks import CHECKS
from .row_chunks import CHUNKS

#: The words of the header.
HEADER = (
    "rows", "row_words", "arrays", "chunk", "chunk_bytes", "item_bytes", "row_records", "scratch", "phases",
    "phase_records", "is_joint", "copies", "copy_pairs", "dtype", "tensor_type", "array_type", "mask", "chunks",
    "blocks", "block_tables", "table_bytes", "scratch_bytes", "parallel", "failed_row", "failed_gradient",
)  # fmt: skip
#: The words of a phase; a fold has those of `FOLD`.
PHASE = ("scalars", "scalars_table", "body", "body_table", "folds", "fold_records")
FOLD = ("partial", "total", "kind", "first")
#: How partial results of folds are combined, by the word of the fold: as float64, in which truth is 1.
FOLD_KINDS = {"add": 0, "minimum": 1, "logical_and": 1, "maximum": 2, "logical_or": 2}
#: The words of a row before the pointers of its arrays; the gradient is the second array.
ROW_START = 2
_GRADIENT = 1

# NumPy's flags of arrays
_CONTIGUOUS, _OWNED, _ALIGNED, _WRITEABLE = 0x1, 0x4, 0x100, 0x400


def render_walk(slots: Mapping[str, int]) -> str:
    """The module with the function `step(self, (values, gradients, runs), count)`; `slots` are the places of a tensor's
    slots in its object.

    Values are tensors, whose arrays are overwritten if nothing else refers to them, or arrays, which the caller has
    checked; gradients are tensors that have them, or arrays. False if an item is not as it should be: the header says
    which, -1 if there are more or fewer. With `runs` True the rows are then updated.
    """
    names = {f"H_{name}": i for i, name in enumerate(HEADER)}
    names |= {f"P_{name}": i for i, name in enumerate(PHASE)} | {f"F_{name}": i for i, name in enumerate(FOLD)}
    names |= {f"S_{name}": at for name, at in slots.items()}
    names |= FIELDS | {
        "START": ROW_START, "SECOND": ROW_START + _GRADIENT, "GRADIENT": _GRADIENT, "READ": _CONTIGUOUS | _ALIGNED,
        "WRITE": _CONTIGUOUS | _ALIGNED | _OWNED | _WRITEABLE, "PHASE_WORDS": len(PHASE), "FOLD_WORDS": len(FOLD),
    }  # fmt: skip
    return fill_in(_DECLARATIONS + ACCESSORS + _WALK + CHUNKS + CHECKS, names)


_DECLARATIONS = """
@pb_true = external global i8
@pb_false = external global i8
declare void @pb_incref(ptr)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
"""

_WALK = """
define internal void @set(ptr %words, i64 %number, i64 %value) alwaysinline {
  %place = getelementptr i64, ptr %words, i64 %number
  store i64 %value, ptr %place
  ret void
}
define internal void @point(ptr %words, i64 %number, ptr %value) alwaysinline {
  %place = getelementptr ptr, ptr %words, i64 %number
  store ptr %value, ptr %place
  ret void
}
define internal ptr @item(ptr %list, i64 %number) alwaysinline {
  %items = call ptr @field(ptr %list, i64 $ITEMS)
  %found = call ptr @pointer(ptr %items, i64 %number)
  ret ptr %found
}

define internal void @run_rows(ptr %plan, ptr %phase, i64 %first, i64 %last) {
entry:
  %words = call i64 @word(ptr %plan, i64 $H_row_words)
  %records = call ptr @pointer(ptr %plan, i64 $H_row_records)
  %table = call ptr @pointer(ptr %phase, i64 $P_body_table)
  %scratch = call ptr @pointer(ptr %plan, i64 $H_scratch)
  br label %next
next:
  %i = phi i64 [ %first, %entry ], [ %after, %one ]
  %done = icmp eq i64 %i, %last
  br i1 %done, label %end, label %one
one:
  %at = mul i64 %i, %words
  %row = getelementptr i64, ptr %records, i64 %at
  %chunks = call i64 @count_chunks(ptr %plan, ptr %row)
  call void @walk(ptr %plan, ptr %phase, ptr %row, ptr %table, ptr %scratch, i64 0, i64 %chunks)
  %after = add i64 %i, 1
  br label %next
end:
  ret void
}

define internal void @run_block(ptr %given, i64 %block, i64 %worker) {
entry:
  %plan = call ptr @pointer(ptr %given, i64 0)
  %phase = call ptr @pointer(ptr %given, i64 1)
  %rows = call i64 @word(ptr %plan, i64 $H_rows)
  %words = call i64 @word(ptr %plan, i64 $H_row_words)
  %records = call ptr @pointer(ptr %plan, i64 $H_row_records)
  %tables = call ptr @pointer(ptr %plan, i64 $H_block_tables)
  %table.bytes = call i64 @word(ptr %plan, i64 $H_table_bytes)
  %table.at = mul i64 %table.bytes, %block
  %table = getelementptr i8, ptr %tables, i64 %table.at
  %scratches = call ptr @pointer(ptr %plan, i64 $H_scratch)
  %scratch.bytes = call i64 @word(ptr %plan, i64 $H_scratch_bytes)
  %scratch.at = mul i64 %scratch.bytes, %block
  %scratch = getelementptr i8, ptr %scratches, i64 %scratch.at
  %chunks = call i64 @word(ptr %plan, i64 $H_chunks)
  %blocks = call i64 @word(ptr %plan, i64 $H_blocks)
  %low.product = mul i64 %block, %chunks
  %low = udiv i64 %low.product, %blocks
  %high.product = add i64 %low.product, %chunks
  %high = udiv i64 %high.product, %blocks
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %i.after, %passed ]
  %before = phi i64 [ 0, %entry ], [ %behind, %passed ]
  %done = icmp eq i64 %i, %rows
  br i1 %done, label %end, label %one
one:
  %at = mul i64 %i, %words
  %row = getelementptr i64, ptr %records, i64 %at
  %count = call i64 @count_chunks(ptr %plan, ptr %row)
  %behind = add i64 %before, %count
  %i.after = add i64 %i, 1
  %late = icmp ugt i64 %low, %before
  %from = select i1 %late, i64 %low, i64 %before
  %early = icmp ult i64 %high, %behind
  %to = select i1 %early, i64 %high, i64 %behind
  %some = icmp ult i64 %from, %to
  br i1 %some, label %mine, label %passed
mine:
  %first = sub i64 %from, %before
  %last = sub i64 %to, %before
  call void @walk(ptr %plan, ptr %phase, ptr %row, ptr %table, ptr %scratch, i64 %first, i64 %last)
  br label %passed
passed:
  br label %next
end:
  ret void
}

define internal void @run_phases(ptr %plan, i64 %first, i64 %last) {
entry:
  %given = alloca [2 x ptr]
  call void @point(ptr %given, i64 0, ptr %plan)
  %rows = call i64 @word(ptr %plan, i64 $H_rows)
  %parallel = call ptr @pointer(ptr %plan, i64 $H_parallel)
  %threads = icmp ne ptr %parallel, null
  %number = sub i64 %last, %first
  %all = icmp eq i64 %number, %rows
  %phases = call i64 @word(ptr %plan, i64 $H_phases)
  %records = call ptr @pointer(ptr %plan, i64 $H_phase_records)
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %after, %ran ]
  %done = icmp eq i64 %i, %phases
  br i1 %done, label %end, label %one
one:
  %at = mul i64 %i, $PHASE_WORDS
  %phase = getelementptr i64, ptr %records, i64 %at
  call void @start(ptr %phase)
  %after = add i64 %i, 1
  %folds = call i64 @word(ptr %phase, i64 $P_folds)
  %writes = icmp eq i64 %folds, 0
  %may = and i1 %threads, %all
  %shared = and i1 %may, %writes
  br i1 %shared, label %share, label %alone
share:
  call void @point(ptr %given, i64 1, ptr %phase)
  %blocks = call i64 @word(ptr %plan, i64 $H_blocks)
  call void %parallel(ptr @run_block, ptr %given, i64 %blocks)
  br label %ran
alone:
  call void @run_rows(ptr %plan, ptr %phase, i64 %first, i64 %last)
  br label %ran
ran:
  br label %next
end:
  ret void
}

define internal void @run(ptr %plan) {
entry:
  %rows = call i64 @word(ptr %plan, i64 $H_rows)
  %joint = call i64 @word(ptr %plan, i64 $H_is_joint)
  %together = icmp ne i64 %joint, 0
  br i1 %together, label %all, label %next
all:
  call void @run_phases(ptr %plan, i64 0, i64 %rows)
  br label %copy
next:
  %i = phi i64 [ 0, %entry ], [ %i.after, %one ]
  %done = icmp eq i64 %i, %rows
  br i1 %done, label %copy, label %one
one:
  %i.after = add i64 %i, 1
  call void @run_phases(ptr %plan, i64 %i, i64 %i.after)
  br label %next
copy:
  %copies = call i64 @word(ptr %plan, i64 $H_copies)
  %pairs = call ptr @pointer(ptr %plan, i64 $H_copy_pairs)
  br label %copying
copying:
  %c = phi i64 [ 0, %copy ], [ %c.after, %pair ]
  %copied = icmp eq i64 %c, %copies
  br i1 %copied, label %end, label %pair
pair:
  %at = mul i64 %c, 2
  %more = add i64 %at, 1
  %to = call ptr @pointer(ptr %pairs, i64 %at)
  %from = call ptr @pointer(ptr %pairs, i64 %more)
  %word = load i64, ptr %from
  store i64 %word, ptr %to
  %c.after = add i64 %c, 1
  br label %copying
end:
  ret void
}

define ptr @step(ptr %self, ptr %args, i64 %count) {
  %plan = call ptr @field(ptr %self, i64 $DATA)
  %values = call ptr @pointer(ptr %args, i64 0)
  %gradients = call ptr @pointer(ptr %args, i64 1)
  %runs = call ptr @pointer(ptr %args, i64 2)
  %rows = call i64 @word(ptr %plan, i64 $H_rows)
  %value.count = call ptr @field(ptr %values, i64 $SIZE)
  %gradient.count = call ptr @field(ptr %gradients, i64 $SIZE)
  %wanted = inttoptr i64 %rows to ptr
  %enough = icmp eq ptr %value.count, %wanted
  %many = icmp eq ptr %gradient.count, %wanted
  %both = and i1 %enough, %many
  br i1 %both, label %checked, label %other
other:
  call void @set(ptr %plan, i64 $H_failed_row, i64 -1)
  br label %no
checked:
  %good = call i1 @check(ptr %plan, ptr %values, ptr %gradients)
  br i1 %good, label %ready, label %no
ready:
  %now = icmp eq ptr %runs, @pb_true
  br i1 %now, label %running, label %yes
running:
  call void @run(ptr %plan)
  br label %yes
yes:
  call void @pb_incref(ptr @pb_true)
  ret ptr @pb_true
no:
  call void @pb_incref(ptr @pb_false)
  ret ptr @pb_false
}
"""
