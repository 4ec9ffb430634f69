export type Mark = 'X' | 'O'

/** Nine cells, row by row from the top left. */
export type Board = (Mark | null)[]

const LINES = [
  [0, 1, 2],
  [3, 4, 5],
  [6, 7, 8],
  [0, 3, 6],
  [1, 4, 7],
  [2, 5, 8],
  [0, 4, 8],
  [2, 4, 6],
] as const

export const emptyBoard = (): Board => Array<Mark | null>(9).fill(null)

export const otherMark = (mark: Mark): Mark => (mark === 'X' ? 'O' : 'X')

/** Returns the three winning cells, or undefined. */
export function winningLine(board: readonly (Mark | null)[]): readonly [number, number, number] | undefined {
  return LINES.find(([a, b, c]) => board[a] !== null && board[a] === board[b] && board[a] === board[c])
}

/** Returns the winning mark, `'draw'` for a full board without a line, or null during the game. */
export function outcome(board: readonly (Mark | null)[]): Mark | 'draw' | null {
  const line = winningLine(board)
  if (line) return board[line[0]] ?? null
  return board.includes(null) ? null : 'draw'
}
