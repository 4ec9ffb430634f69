import { existsSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { fileURLToPath } from 'node:url'

/** Folder of the examples, as TypeScript or compiled. */
const EXAMPLES = new URL('../', import.meta.url)

/** Games that the backend serves, in the order of the front page. The notes are last, because they need an additional library. */
export const GAMES = ['arena', 'cards', 'tictactoe', 'counter', 'notes'] as const
export type Game = (typeof GAMES)[number]

/** Returns the room types that the players of a game may join: those of `room.ts` and `queue.ts` in its folder. */
export const roomTypesOf = (game: Game): string[] => (game === 'cards' ? [game, 'cards-ranked'] : [game])

/** Path of `name` next to the examples: the TypeScript file if it exists, else the compiled one. */
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
