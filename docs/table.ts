/** Markdown. */

export const code = (text: string | number): string => `\`${text}\``

export const table = (header: readonly string[], rows: readonly (readonly string[])[]): string =>
  [
    `| ${header.join(' | ')} |`,
    `|${'---|'.repeat(header.length)}`,
    ...rows.map((cells) => `| ${cells.map((cell) => cell.replaceAll(/(?<!\\)\|/g, '\\|')).join(' | ')} |`),
  ].join('\n')
