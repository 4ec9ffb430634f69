import { describe, expect, it } from 'vitest'
import bare from '../../test/support/typed-rooms/bare.ts'
import zoo from '../../test/support/typed-rooms/zoo.ts'
import { typesCommand } from './command.ts'
import { luaTypes } from './lua.ts'
import { pythonTypes } from './python.ts'
import { shapesOf } from './shapes.ts'

/** What the types say of parts of the room types `zoo` and `bare`. */
const PARTS: readonly [part: string, python: string, lua: string][] = [
  [
    'a message',
    '# Data of the message `tag`.\nclass Room3dZooTagMessage(TypedDict):\n    a: str\n    b: NotRequired[float]\n',
    '---Data of the message `tag`.\n---@class Room3dZooTagMessage\n---@field a string\n---@field b? number\n',
  ],
  [
    'a message without data',
    'Room3dZooCloseMessage: TypeAlias = "None"',
    '---@alias Room3dZooCloseMessage nil',
  ],
  [
    'a message of several kinds, one with a keyword as its key',
    'Room3dZooFeedMessageOption2 = TypedDict("Room3dZooFeedMessageOption2", {\n    "of": "Literal[\\"meat\\"]",\n    "from": "str | None",\n})\n',
    '---@alias Room3dZooFeedMessage Room3dZooFeedMessageOption|Room3dZooFeedMessageOption2\n',
  ],
  [
    'a reply, of a schema of zod',
    'class Room3dZooFeedReply(TypedDict):\n    eaten: bool\n    by: list[str] | None\n',
    '---@class Room3dZooFeedReply\n---@field eaten boolean\n---@field by string[]|roomful.Null\n',
  ],
  [
    'an event, with the default that the room has filled in',
    'class Room3dZooFedEvent(TypedDict):\n    at: int\n    loud: bool\n',
    '---@class Room3dZooFedEvent\n---@field at integer\n---@field loud boolean\n',
  ],
  [
    'a join option with its default',
    'level: NotRequired[Literal[1, 2] | float]  # default 1\n',
    '---@field level? 1|2|number # default 1\n',
  ],
  [
    'a state with records and lists, of which members do not see all',
    '    animals: dict[str, Room3dZooStateAnimalsValue]\n    deck: NotRequired[list[list[str | float]]]\n',
    '---@field animals table<string, Room3dZooStateAnimalsValue>\n---@field deck? (string|number)[][]\n',
  ],
  [
    'a hidden field, behind a field with a dash in its name',
    '    "secret": "NotRequired[str | None]",\n    "fur-color": "NotRequired[str]",\n',
    '---@field secret? string|roomful.Null\n---@field ["fur-color"]? string\n',
  ],
  [
    'a type that contains itself',
    'Room3dZooStateFamilyChildren: TypeAlias = "list[Room3dZooStateFamilyChildrenItem]"',
    '---@field children Room3dZooStateFamilyChildren\n\n---@alias Room3dZooStateFamilyChildren Room3dZooStateFamilyChildrenItem[]',
  ],
  [
    'what a schema does not tell: a date, and the result of a transformation',
    '    at: Any  # the schema does not tell\n    either: str | float\n',
    '---@field size any # the schema does not tell\n---@field name string\n',
  ],
  [
    'a state without a schema',
    '# The state as `create` returns it. TypeScript 7 in the project, or a schema `state` in the room type, tells all of it.\nclass BareState(TypedDict):\n    round: float\n    names: list[str]\n    scores: Any  # an empty object in the first state\n    winner: Any  # null in the first state\n    at: BareStateAt\n',
    '---@class BareState\n---@field round number\n---@field names string[]\n---@field scores any # an empty object in the first state\n---@field winner any # null in the first state\n---@field at BareStateAt\n',
  ],
  [
    'events that are not declared',
    '# Room type bare\n# Events: none are declared, so they may have any name and any data.\n',
    '-- Room type bare\n-- Events: none are declared, so they may have any name and any data.\n',
  ],
]

const rooms = shapesOf([bare, zoo], new Map())
const python = pythonTypes(rooms, 'Written by a test.')
const lua = luaTypes(rooms, 'Written by a test.')

describe('types of rooms', () => {
  it.each(PARTS)('have %s', (_, inPython, inLua) => {
    expect(python).toContain(inPython)
    expect(lua).toContain(inLua)
  })

  it('import only what the module uses', () => {
    const [zebra] = shapesOf([{ ...bare, type: 'zebra', create: (options: unknown) => options }], new Map())
    expect(zebra!.gaps[0]).toMatch(/^State: unknown, because `create` needs options, or has failed/)
    expect(pythonTypes([zebra!], 'Empty.')).not.toContain('from typing')
    expect(python).toContain('\nfrom typing import Any, Literal, NotRequired, TypeAlias, TypedDict\n')
  })

  it('have different names for room types whose names differ only in punctuation', () => {
    const declared = shapesOf([zoo, { ...zoo, type: '3d_zoo' }], new Map())
    expect(declared.map(({ declarations }) => declarations[0]!.name)).toEqual([
      'Room3dZooOptions',
      'Room3dZooOptions2',
    ])
  })
})

describe('roomful types', () => {
  it.each([
    [[], '--lang is missing: add --lang lua or --lang python'],
    [['--lang', 'pyton', 'rooms'], '--lang is pyton: did you mean python?'],
    [['--lang', 'rust', 'rooms'], '--lang is rust: there are lua and python'],
    [['--lang', 'lua'], 'a folder is missing, as in roomful types --lang lua rooms/'],
    [['--lang', 'lua', 'rooms', 'more'], 'more is one word too many: name one folder'],
    [['--lang', 'lua', 'no-such-folder'], 'the folder of room types no-such-folder cannot be read: ENOENT'],
    [
      ['--lang', 'lua', 'docs/decisions'],
      'docs/decisions has no room types: put modules there whose default export is',
    ],
  ])('rejects %j: %s', async (words, message) => {
    await expect(typesCommand(words)).rejects.toThrow(message)
  })
})
