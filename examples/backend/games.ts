import { existsSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { fileURLToPath } from 'node:url'

/** The folder of the examples, whether they run as TypeScript or compiled. */
const EXAMPLES = new URL('../', import.meta.url)

/** The games that the backend serves, in the order of the front page, and the board that is not on it: it needs a library of its own. */
export const GAMES = ['arena', 'cards', 'tictactoe', 'counter', 'notes'] as const
export type Game = (typeof GAMES)[number]

/** Path of `name` beside the examples, as TypeScript where it is there, else compiled. */
function module(name: string): string {
  const files = ['ts', 'tsx', 'js'].map((kind) => fileURLToPath(new URL(`${name}.${kind}`, EXAMPLES)))
  return files.find(existsSync) ?? files.at(-1)!
}

/** The entry of a game's browser script. */
export const pageModule = (game: Game): string => module(`${game}/page`)

/** The entry of the front page's browser script. */
export const frontModule = (): string => module('ui/front')

/** The source of a game's room, for people to read. */
export const roomSource = (game: Game): Promise<string> => readFile(module(`${game}/room`), 'utf8')

/** A file of the examples as text; `path` comes from code, never from a request. */
export const asset = (path: string): Promise<string> => readFile(new URL(path, EXAMPLES), 'utf8')
