import type { Case } from '../case.ts'
import { forms } from './forms.ts'
import { handshake } from './handshake.ts'
import { hostile } from './hostile.ts'
import { messages } from './messages.ts'
import { resume } from './resume.ts'
import { rooms } from './rooms.ts'
import { sessions } from './sessions.ts'
import { state } from './state.ts'
import { tokens } from './tokens.ts'
import { vectorCases } from './vectors.ts'

/** Every case, in the order they are run. */
export const cases: readonly Case[] = [
  ...vectorCases,
  ...handshake,
  ...rooms,
  ...messages,
  ...forms,
  ...state,
  ...resume,
  ...sessions,
  ...tokens,
  ...hostile,
]
