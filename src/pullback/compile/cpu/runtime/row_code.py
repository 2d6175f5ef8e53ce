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

from .row_checks import CHECKS

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

# NumPy's array object and Python's list, on a 64-bit machine with the reference count in front.
_TYPE, _DATA, _BASE, _DESCR, _FLAGS, _WEAK, _SIZE, _ITEMS = 8, 16, 48, 56, 64, 72, 16, 24
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
    names |= {
        "TYPE": _TYPE, "DATA": _DATA, "BASE": _BASE, "DESCR": _DESCR, "FLAGS": _FLAGS, "WEAK": _WEAK, "SIZE": _SIZE,
        "ITEMS": _ITEMS, "START": ROW_START, "SECOND": ROW_START + _GRADIENT, "GRADIENT": _GRADIENT,
        "READ": _CONTIGUOUS | _ALIGNED,
        "WRITE": _CONTIGUOUS | _ALIGNED | _OWNED | _WRITEABLE, "PHASE_WORDS": len(PHASE), "FOLD_WORDS": len(FOLD),
    }  # fmt: skip
    text = _WALK + CHECKS
    for name in sorted(names, key=len, reverse=True):
        text = text.replace(f"${name}", str(names[name]))
    return text


_WALK = """
@pb_true = external global i8
@pb_false = external global i8
declare void @pb_incref(ptr)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

define internal ptr @field(ptr %object, i64 %at) alwaysinline {
  %place = getelementptr i8, ptr %object, i64 %at
  %found = load ptr, ptr %place
  ret ptr %found
}
define internal i64 @word(ptr %words, i64 %number) alwaysinline {
  %place = getelementptr i64, ptr %words, i64 %number
  %found = load i64, ptr %place
  ret i64 %found
}
define internal ptr @pointer(ptr %words, i64 %number) alwaysinline {
  %place = getelementptr ptr, ptr %words, i64 %number
  %found = load ptr, ptr %place
  ret ptr %found
}
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

define internal void @start(ptr %phase) {
entry:
  %folds = call i64 @word(ptr %phase, i64 $P_folds)
  %records = call ptr @pointer(ptr %phase, i64 $P_fold_records)
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %after, %one ]
  %done = icmp eq i64 %i, %folds
  br i1 %done, label %compute, label %one
one:
  %at = mul i64 %i, $FOLD_WORDS
  %fold = getelementptr i64, ptr %records, i64 %at
  %total = call ptr @pointer(ptr %fold, i64 $F_total)
  %first = call i64 @word(ptr %fold, i64 $F_first)
  store i64 %first, ptr %total
  %after = add i64 %i, 1
  br label %next
compute:
  %scalars = call ptr @pointer(ptr %phase, i64 $P_scalars)
  %none = icmp eq ptr %scalars, null
  br i1 %none, label %end, label %run
run:
  %table = call ptr @pointer(ptr %phase, i64 $P_scalars_table)
  call void %scalars(ptr %table)
  br label %end
end:
  ret void
}

define internal void @run_body(ptr %phase, ptr %table) {
entry:
  %body = call ptr @pointer(ptr %phase, i64 $P_body)
  call void %body(ptr %table)
  %folds = call i64 @word(ptr %phase, i64 $P_folds)
  %records = call ptr @pointer(ptr %phase, i64 $P_fold_records)
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %after, %stored ]
  %done = icmp eq i64 %i, %folds
  br i1 %done, label %end, label %one
one:
  %at = mul i64 %i, $FOLD_WORDS
  %fold = getelementptr i64, ptr %records, i64 %at
  %partial = call ptr @pointer(ptr %fold, i64 $F_partial)
  %total = call ptr @pointer(ptr %fold, i64 $F_total)
  %kind = call i64 @word(ptr %fold, i64 $F_kind)
  %x = load double, ptr %partial
  %y = load double, ptr %total
  switch i64 %kind, label %add [ i64 1, label %least
                                 i64 2, label %most ]
add:
  %sum = fadd double %y, %x
  br label %stored
least:
  %less = fcmp ule double %x, %y
  %low = select i1 %less, double %x, double %y
  %known = fcmp ord double %y, %y
  %low.or.nan = select i1 %known, double %low, double %y
  br label %stored
most:
  %more = fcmp uge double %x, %y
  %high = select i1 %more, double %x, double %y
  %sure = fcmp ord double %y, %y
  %high.or.nan = select i1 %sure, double %high, double %y
  br label %stored
stored:
  %new = phi double [ %sum, %add ], [ %low.or.nan, %least ], [ %high.or.nan, %most ]
  store double %new, ptr %total
  %after = add i64 %i, 1
  br label %next
end:
  ret void
}

define internal void @advance(ptr %table, i64 %arrays, i64 %bytes) {
entry:
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %after, %one ]
  %done = icmp eq i64 %i, %arrays
  br i1 %done, label %end, label %one
one:
  %old = call ptr @pointer(ptr %table, i64 %i)
  %new = getelementptr i8, ptr %old, i64 %bytes
  call void @point(ptr %table, i64 %i, ptr %new)
  %after = add i64 %i, 1
  br label %next
end:
  ret void
}

define internal i64 @count_chunks(ptr %plan, ptr %row) {
  %size = call i64 @word(ptr %row, i64 1)
  %chunk = call i64 @word(ptr %plan, i64 $H_chunk)
  %more = add i64 %size, %chunk
  %most = sub i64 %more, 1
  %found = udiv i64 %most, %chunk
  ret i64 %found
}

define internal void @walk(ptr %plan, ptr %phase, ptr %row, ptr %table, ptr %scratch, i64 %first, i64 %last) {
entry:
  %size = call i64 @word(ptr %row, i64 1)
  %chunk = call i64 @word(ptr %plan, i64 $H_chunk)
  %bytes = call i64 @word(ptr %plan, i64 $H_chunk_bytes)
  %arrays = call i64 @word(ptr %plan, i64 $H_arrays)
  %folds = call i64 @word(ptr %phase, i64 $P_folds)
  %mask = call ptr @pointer(ptr %plan, i64 $H_mask)
  %pointers = getelementptr i64, ptr %row, i64 $START
  %full = udiv i64 %size, %chunk
  %covered = mul i64 %full, %chunk
  %left = sub i64 %size, %covered
  %length = mul i64 %arrays, 8
  call void @llvm.memcpy.p0.p0.i64(ptr %table, ptr %pointers, i64 %length, i1 false)
  %skipped = mul i64 %first, %bytes
  call void @advance(ptr %table, i64 %arrays, i64 %skipped)
  %with.rest = icmp ugt i64 %last, %full
  %until = select i1 %with.rest, i64 %full, i64 %last
  %folding = icmp ne i64 %folds, 0
  br i1 %folding, label %masked, label %next
masked:
  call void @point(ptr %table, i64 %arrays, ptr %mask)
  br label %next
next:
  %i = phi i64 [ %first, %entry ], [ %first, %masked ], [ %i.after, %run ]
  %done = icmp uge i64 %i, %until
  br i1 %done, label %tail, label %run
run:
  call void @run_body(ptr %phase, ptr %table)
  call void @advance(ptr %table, i64 %arrays, i64 %bytes)
  %i.after = add i64 %i, 1
  br label %next
tail:
  br i1 %with.rest, label %rest, label %end
rest:
  %item = call i64 @word(ptr %plan, i64 $H_item_bytes)
  %rest.bytes = mul i64 %left, %item
  br label %fetch
fetch:
  %f = phi i64 [ 0, %rest ], [ %f.after, %fetching ]
  %fetched = icmp eq i64 %f, %arrays
  br i1 %fetched, label %mask.rest, label %fetching
fetching:
  %from = call ptr @pointer(ptr %table, i64 %f)
  %f.at = mul i64 %f, %bytes
  %to = getelementptr i8, ptr %scratch, i64 %f.at
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %from, i64 %rest.bytes, i1 false)
  call void @point(ptr %table, i64 %f, ptr %to)
  %f.after = add i64 %f, 1
  br label %fetch
mask.rest:
  br i1 %folding, label %fold.rest, label %write.rest
fold.rest:
  %masked.items = sub i64 %chunk, %left
  %part = getelementptr i8, ptr %mask, i64 %masked.items
  call void @point(ptr %table, i64 %arrays, ptr %part)
  call void @run_body(ptr %phase, ptr %table)
  br label %end
write.rest:
  call void @run_body(ptr %phase, ptr %table)
  %covered.bytes = mul i64 %covered, %item
  br label %store
store:
  %s = phi i64 [ 0, %write.rest ], [ %s.after, %stored ]
  %complete = icmp eq i64 %s, %arrays
  br i1 %complete, label %end, label %storing
storing:
  %s.after = add i64 %s, 1
  %is_gradient = icmp eq i64 %s, $GRADIENT
  br i1 %is_gradient, label %stored, label %back
back:
  %start = call ptr @pointer(ptr %pointers, i64 %s)
  %place = getelementptr i8, ptr %start, i64 %covered.bytes
  %s.at = mul i64 %s, %bytes
  %result = getelementptr i8, ptr %scratch, i64 %s.at
  call void @llvm.memcpy.p0.p0.i64(ptr %place, ptr %result, i64 %rest.bytes, i1 false)
  br label %stored
stored:
  br label %store
end:
  ret void
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
