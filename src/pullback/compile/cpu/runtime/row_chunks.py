"""The text that runs the pieces of a row program on the chunks of one row, with their folds.

The rest of a row that is no whole chunk is copied to scratch memory and back. `$NAMES` are numbers that `render_walk`
fills in.
"""

from __future__ import annotations

CHUNKS = """
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
"""
