import { fileURLToPath } from 'node:url'

const ROOT = fileURLToPath(new URL('../', import.meta.url))
const OWN = [`${ROOT}dataplane`, `${ROOT}shared`]

/** Returns true for a stack frame of roomful or Node. Such frames, for example those of a state's views, do not show where room code is. */
export const isOwnFrame = (frame: string): boolean =>
  frame.includes('node:') || OWN.some((folder) => frame.includes(folder))
