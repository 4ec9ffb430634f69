/** Rows of text in columns, each as wide as its widest cell; columns whose `right` is true are aligned to the right. */
export function table(rows: readonly (readonly string[])[], right: readonly boolean[] = []): string {
  const widths: number[] = []
  for (const row of rows)
    row.forEach((cell, column) => {
      widths[column] = Math.max(widths[column] ?? 0, cell.length)
    })
  return rows
    .map((row) =>
      row
        .map((cell, column) =>
          right[column] ? cell.padStart(widths[column]!) : cell.padEnd(widths[column]!),
        )
        .join('   ')
        .trimEnd(),
    )
    .map((line) => `  ${line}`.trimEnd())
    .join('\n')
}
