import { chaosRoom } from '../room-logic.ts'

export default chaosRoom('snapshot')
