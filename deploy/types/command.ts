import { parseArgs } from 'node:util'
import { loadRoomFiles } from '../../dataplane/room/loader.ts'
import { nearestOf } from '../../shared/config.ts'
import { statesByCompiler } from './compiler.ts'
import { luaTypes } from './lua.ts'
import { pythonTypes } from './python.ts'
import { type RoomShapes, shapesOf } from './shapes.ts'

/** `roomful types`: prints the types of room types for another language. */

const LANGUAGES: Readonly<Record<string, (rooms: readonly RoomShapes[], header: string) => string>> = {
  lua: luaTypes,
  python: pythonTypes,
}
const NAMES = Object.keys(LANGUAGES)

const HELP = `Usage: roomful types --lang ${NAMES.join('|')} FOLDER

Prints the types of the room types in FOLDER: state, messages, replies, events, join options and rows of lists.

  --lang lua         annotations for the Lua language server
  --lang python      TypedDicts
`

/** Returns the text to print. Throws an Error that says what is wrong with the words, or with the folder. */
export async function typesCommand(words: readonly string[]): Promise<string> {
  const { values, positionals } = parseArgs({
    args: [...words],
    options: { lang: { type: 'string' }, help: { type: 'boolean', short: 'h', default: false } },
    allowPositionals: true,
  })
  if (values.help) return HELP
  const { lang } = values
  if (lang === undefined) throw new Error(`--lang is missing: add --lang ${NAMES.join(' or --lang ')}`)
  const write = Object.hasOwn(LANGUAGES, lang) ? LANGUAGES[lang] : undefined
  if (!write) {
    const meant = nearestOf(lang, NAMES)
    throw new Error(
      `--lang is ${lang}: ${meant ? `did you mean ${meant}?` : `there are ${NAMES.join(' and ')}`}`,
    )
  }
  const [folder, ...more] = positionals
  if (folder === undefined) throw new Error(`a folder is missing, as in roomful types --lang ${lang} rooms/`)
  if (more.length > 0) throw new Error(`${more[0]} is one word too many: name one folder`)
  const files = await loadRoomFiles(folder)
  const untold = [...files].filter(([, { state, matches }]) => !state && !matches)
  const compiled = await statesByCompiler(untold.map(([file]) => file))
  const states = new Map(
    untold.flatMap(([file, { type }]) => (compiled.has(file) ? [[type, compiled.get(file)!]] : [])),
  )
  return write(
    shapesOf([...files.values()], states),
    `Written by roomful types --lang ${lang} ${folder}. Do not edit it: run the command again.`,
  )
}
