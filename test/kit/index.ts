/**
 * `roomful/test`: rooms, nodes, store and SDK in one process, on a clock of its own. For any test runner.
 * @module roomful/test
 */
export {
  type Player,
  type Players,
  type Seats,
  type TestOptions,
  type TestRooms,
  testRooms,
} from './rooms.ts'
